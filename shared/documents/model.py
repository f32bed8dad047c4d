"""What reading a file gives: source documents made of blocks."""
