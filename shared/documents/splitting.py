"""Documents become passages: structure first, size second."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from shared.contracts import PassageDraft
from shared.documents.cutting import JOINT_TOKENS, Piece, Room, pieces
from shared.documents.model import Block, BlockKind, SourceDocument
from shared.documents.settings import SplitSettings
from shared.documents.tokens import Count, counter
from shared.language import SPOKEN, detect_language

_JOINT: Final = "\n\n"
_CRUMB_TOKENS: Final = 50
"""A paragraph shorter than this rather lengthens its neighbour than stands alone."""
_HEADING_TOKENS: Final = 120
"""Title and heading path are embedded with the passage; what they have beyond this they take from its room."""
_SURE_PROSE_CHARS: Final = 200
"""Prose long enough for its language to be told without doubt."""
_PROSE_CHARS: Final = 4_000
"""Prose that is looked at to tell its language."""


def split(document: SourceDocument, settings: SplitSettings, count: Count | None = None) -> list[PassageDraft]:
    """Passages in the document's order. None reaches over the end of a section or page.

    `count` gives a text's tokens; None takes those of the embedder in use.
    """
    count = count or counter(settings.tokenizer)
    found: list[PassageDraft] = []
    for (section, anchor, page), group in groupby(document.blocks, key=_place):
        blocks = list(group)
        language = language_of(blocks, document.language)
        for text in pack(blocks, room_below(f"{document.title} {section}", settings, count)):
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


def split_hash(document: SourceDocument, settings: SplitSettings) -> str:
    """SHA-256, in hex, that changes whenever the document's passages or their filters would."""
    return hashlib.sha256(f"{document.content_hash} {settings.fingerprint}".encode()).hexdigest()


def _place(block: Block) -> tuple[str, str | None, int | None]:
    return block.section, block.anchor, block.page


def room_below(headings: str, settings: SplitSettings, count: Count) -> Room:
    """What passages under these headings may hold, so that the embedder reads all of both."""
    surplus = max(0, count(headings) - _HEADING_TOKENS)
    most = max(settings.max - surplus, settings.max // 4)
    return Room(target=min(settings.target, most), max=most, overlap=settings.overlap, count=count)


def language_of(blocks: list[Block], document_language: str) -> str:
    """The document's language, unless its section was left untranslated: enough prose tells one from the other."""
    prose = _prose(blocks)
    if document_language not in SPOKEN or len(prose) < _SURE_PROSE_CHARS:
        return document_language
    return detect_language(prose, default=document_language)


def _prose(blocks: list[Block]) -> str:
    found, size = [], 0
    for block in blocks:
        if block.kind == "text" and size < _PROSE_CHARS:
            found.append(block.text[:_PROSE_CHARS])
            size += len(found[-1])
    return "\n".join(found)


def pack(blocks: list[Block], room: Room) -> Iterator[str]:
    """Texts of one section, its blocks put together while they fit."""
    held: Piece | None = None
    for block in blocks:
        for number, piece in enumerate(pieces(block, room)):
            # Pieces of one block stay apart: a joint between them would not be in the document.
            if held and number == 0 and _joins(held, piece, block.kind, room):
                held = Piece(held.text + _JOINT + piece.text, held.size + JOINT_TOKENS + piece.size)
            else:
                if held:
                    yield held.text
                held = piece
    if held:
        yield held.text


def _joins(held: Piece, piece: Piece, kind: BlockKind, room: Room) -> bool:
    size = held.size + JOINT_TOKENS + piece.size
    # A table or listing is understood by the words that lead to it, so it may go beyond the target with them.
    stays_near = kind != "text" or min(held.size, piece.size) < _CRUMB_TOKENS
    return size <= (room.max if stays_near else room.target)
