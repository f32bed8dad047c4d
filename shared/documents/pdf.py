"""PDF: text layer page by page, sections from the outline."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pypdf import PageObject, PdfReader
from pypdf.errors import DependencyError, PyPdfError
from pypdf.generic import ArrayObject, Destination, NumberObject

from shared.documents.model import Block, Content, UnreadableDocument
from shared.documents.outline import Outline
from shared.documents.pdf_lines import PageHeading, join_lines, page_lines, parts_of
from shared.documents.text import clean, one_line

# What pypdf lets through on damaged files, besides its own errors.
_DAMAGE: Final = (PyPdfError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError,
                  AssertionError, NotImplementedError, OSError, zlib.error)  # fmt: skip
_WORD_GAP: Final = -180
"""TeX sets no space characters but moves the pen, in thousandths of the font size; kerning moves it less."""
_SURE_GAP: Final = -500
"""A move that pypdf takes for a space in any font."""


def read_pdf(raw: bytes, path: Path) -> Content:
    """Paragraphs with their page and, where the file has an outline, their section."""
    with _damage_as_unreadable(path):
        reader = _opened(raw, path)
        pages = [page_lines(clean(_page_text(page))) for page in reader.pages]
        headings = _headings(reader)
        title = one_line(clean(str(reader.metadata.title or ""))) if reader.metadata else ""
    if not any(pages):
        raise UnreadableDocument(path, "the PDF has no text layer", "run it through OCR first, e.g. ocrmypdf")
    return Content(blocks=tuple(_blocks(pages, headings)), title=title)


@contextmanager
def _damage_as_unreadable(path: Path) -> Iterator[None]:
    try:
        yield
    except DependencyError as error:
        raise UnreadableDocument(path, f"the PDF can't be decrypted ({error})", "save it without a password") from error
    except _DAMAGE as error:
        raise UnreadableDocument(path, f"not a readable PDF ({error})", "open it and save it again as PDF") from error


def _opened(raw: bytes, path: Path) -> PdfReader:
    reader = PdfReader(io.BytesIO(raw))
    # Many PDFs are encrypted with an empty password, only to forbid printing.
    if reader.is_encrypted and not reader.decrypt(""):
        raise UnreadableDocument(path, "the PDF is encrypted", "save it without a password")
    return reader


def _page_text(page: PageObject) -> str:
    return str(page.extract_text(visitor_operand_before=_mark_word_gaps))


def _mark_word_gaps(operator: Any, operands: Any, _cm: Any, _tm: Any) -> None:
    """Makes gaps between words too wide to be missed, and takes the surplus back with a move of its own."""
    if operator != b"TJ" or not operands or not isinstance(operands[0], ArrayObject):
        return
    shown = operands[0]
    marked: list[Any] = []
    for move in shown:
        if isinstance(move, int | float) and _SURE_GAP < move <= _WORD_GAP:
            marked.extend((NumberObject(_SURE_GAP), NumberObject(round(move - _SURE_GAP))))
        else:
            marked.append(move)
    shown[:] = marked


def _headings(reader: PdfReader) -> dict[int, list[PageHeading]]:
    """Outline entries by page index, in the outline's order."""
    found: dict[int, list[PageHeading]] = {}
    ahead: list[tuple[int, Any]] = [(1, entry) for entry in reversed(reader.outline)]
    while ahead:
        level, entry = ahead.pop()
        if isinstance(entry, list):
            ahead.extend((level + 1, child) for child in reversed(entry))
        elif isinstance(entry, Destination):
            page = reader.get_destination_page_number(entry)
            if page is not None:
                title = one_line(clean(str(entry.title or "")))
                found.setdefault(page, []).append(PageHeading(level, title))
    return found


def _blocks(pages: list[list[str]], headings: dict[int, list[PageHeading]]) -> Iterator[Block]:
    outline = Outline()
    for index, lines in enumerate(pages):
        for heading, part in parts_of(lines, headings.get(index, [])):
            if heading is not None:
                outline.open(heading.level, heading.title)
            for paragraph in join_lines(part):
                yield Block(paragraph, section=outline.section, page=index + 1)
