"""Documents become passages: structure first, size second."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from shared.contracts import PassageDraft
from shared.documents.cutting import pieces
from shared.documents.model import Block, BlockKind, SourceDocument
from shared.documents.settings import SplitSettings
from shared.language import SPOKEN, detect_language

_JOINT: Final = "\n\n"
_CRUMB_CHARS: Final = 200
"""A paragraph shorter than this rather lengthens its neighbour than stands alone."""
_SURE_PROSE_CHARS: Final = 200
"""Prose long enough for its language to be told without doubt."""


def split(document: SourceDocument, settings: SplitSettings) -> list[PassageDraft]:
    """Passages in the document's order. None reaches over the end of a section or page."""
    found: list[PassageDraft] = []
    for (section, anchor, page), group in groupby(document.blocks, key=_place):
        blocks = list(group)
        language = language_of(blocks, document.language)
        for text in pack(blocks, settings):
            found.append(
                PassageDraft(
                    ordinal=len(found),
                    section=section,
                    anchor=anchor,
                    page=page,
                    text=text,
                    language=language,
                )
            )
    return found


def _place(block: Block) -> tuple[str, str | None, int | None]:
    return block.section, block.anchor, block.page


def language_of(blocks: list[Block], document_language: str) -> str:
    """The document's language, unless its section was left untranslated: enough prose tells one from the other."""
    prose = "\n".join(block.text for block in blocks if block.kind == "text")
    if document_language not in SPOKEN or len(prose) < _SURE_PROSE_CHARS:
        return document_language
    return detect_language(prose, default=document_language)


def pack(blocks: list[Block], settings: SplitSettings) -> Iterator[str]:
    """Texts of one section, its blocks put together while they fit."""
    held = ""
    for block in blocks:
        for number, piece in enumerate(pieces(block, settings)):
            # Pieces of one block stay apart: a joint between them would not be in the document.
            if held and number == 0 and _joins(held, piece, block.kind, settings):
                held += _JOINT + piece
            else:
                if held:
                    yield held
                held = piece
    if held:
        yield held


def _joins(held: str, piece: str, kind: BlockKind, settings: SplitSettings) -> bool:
    size = len(held) + len(_JOINT) + len(piece)
    # A table or listing is understood by the words that lead to it, so it may go beyond the target with them.
    stays_near = kind != "text" or min(len(held), len(piece)) < _CRUMB_CHARS
    return size <= (settings.max if stays_near else settings.target)
