"""Files become documents, and documents passages.

    find_files  which files PATH... means      read   a file's documents      split   a document's passages

One file per format (markdown, html, pdf, plain, jsonl), each giving blocks with the place where they stand; nothing
below `splitting` knows about passages.
"""

from shared.documents.finding import find_files
from shared.documents.model import SPLITTER_VERSION, Block, SourceDocument, UnreadableDocument
from shared.documents.reading import read
from shared.documents.settings import ReadSettings, SplitSettings
from shared.documents.splitting import split

__all__ = [
    "SPLITTER_VERSION",
    "Block",
    "ReadSettings",
    "SourceDocument",
    "SplitSettings",
    "UnreadableDocument",
    "find_files",
    "read",
    "split",
]
