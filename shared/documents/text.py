"""Text as all formats share it: decoded, cleaned, cut into paragraphs."""

from __future__ import annotations

import codecs
import re
import unicodedata
from pathlib import Path
from typing import Final

from charset_normalizer import from_bytes

from shared.documents.model import UnreadableDocument

MAX_HEADING_CHARS: Final = 300
"""A heading path travels with every passage, so a runaway heading must not."""

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    # UTF-32 first: its little-endian mark begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Over all its tables charset-normalizer takes short French for Baltic; these are what our languages were written in.
_LEGACY: Final = ["cp1251", "koi8_r", "cp866", "mac_cyrillic", "cp1252", "latin_1", "cp850", "mac_roman"]
_SAMPLE_BYTES: Final = 200_000

_LINE_END: Final = re.compile("\r\n|[\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_UNWANTED: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")
_BLANK: Final = re.compile(r"\s+")
_PARAGRAPH_END: Final = re.compile(r"\n[ \t]*\n\s*")


def decode(raw: bytes, path: Path, *, declared: str | None = None) -> str:
    """Text of a file: by its byte order mark, else UTF-8, else as `declared`, else by its letters."""
    for mark, encoding in _BOMS:
        if raw.startswith(mark):
            return raw[len(mark) :].decode(encoding, errors="replace")
    if b"\x00" in raw:
        raise UnreadableDocument(path, "holds binary data, not text", "convert it to UTF-8 text, or leave it out")
    for encoding in filter(None, ("utf-8", declared)):
        if (text := _decoded(raw, encoding)) is not None:
            return text
    best = from_bytes(raw[:_SAMPLE_BYTES], cp_isolation=_LEGACY).best()
    if best is None:
        raise UnreadableDocument(path, "its text encoding is unknown", "save it as UTF-8")
    return raw.decode(best.encoding, errors="replace")


def _decoded(raw: bytes, encoding: str) -> str | None:
    try:
        return raw.decode(encoding)
    except (UnicodeError, LookupError):
        return None


def clean(text: str) -> str:
    """NFC with "\\n" line ends, without control characters, lone surrogates and stray byte order marks."""
    return unicodedata.normalize("NFC", _UNWANTED.sub("", _LINE_END.sub("\n", text)))


def one_line(text: str) -> str:
    """`text` with every run of blanks made one space, as headings and titles need it, and cut to their size."""
    line = _BLANK.sub(" ", text).strip()
    return line if len(line) <= MAX_HEADING_CHARS else line[: MAX_HEADING_CHARS - 1].rstrip() + "…"


def paragraphs(text: str) -> list[str]:
    """Paragraphs of plain text, which blank lines part; indentation of a first line is kept."""
    found = (piece.strip("\n").rstrip() for piece in _PARAGRAPH_END.split(text))
    return [piece for piece in found if piece.strip()]
