"""What an HTTP answer means to a caller: errors translated to the project's own, Retry-After read."""
