"""Files become documents, and documents passages.

    find_files  which files PATH... means      read   a file's documents      split   a document's passages

`GuardedReader` does the last two in a process of its own, for files that may be made to hurt. One file per format
(markdown, html, pdf, docx, csv_table, plain, jsonl), each giving blocks with the place where they stand; nothing below
`splitting` knows about passages.
"""

from shared.documents.finding import find_files
from shared.documents.guarded import GuardedReader
from shared.documents.model import SPLITTER_VERSION, Block, SourceDocument, UnreadableDocument
from shared.documents.reading import read
from shared.documents.settings import ReadSettings, SplitSettings
from shared.documents.splitting import split, split_hash

__all__ = [
    "SPLITTER_VERSION",
    "Block",
    "GuardedReader",
    "ReadSettings",
    "SourceDocument",
    "SplitSettings",
    "UnreadableDocument",
    "find_files",
    "read",
    "split",
    "split_hash",
]
