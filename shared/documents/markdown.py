"""Markdown: structure from markdown-it's line ranges, text as the source lines stand."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from shared.documents.model import Block, BlockKind, Content
from shared.documents.outline import Outline
from shared.documents.text import one_line

_KINDS: Final[dict[str, BlockKind]] = {"table_open": "table", "fence": "code", "code_block": "code"}
_NO_TEXT: Final = frozenset({"heading_open", "hr"})
_ATTRIBUTES: Final = re.compile(r"\s*\{:?\s*#(?P<id>[^\s{}]+)[^{}]*\}\s*$")
_HTML_ANCHOR: Final = re.compile(r"<a\s[^>]*?\b(?:id|name)\s*=\s*[\"']?([^\s\"'>]+)", re.IGNORECASE)
_ONLY_ANCHORS: Final = re.compile(r"\s*(?:<a\s[^>]*>\s*(?:</a>)?\s*)+", re.IGNORECASE)
_NOT_IN_SLUG: Final = re.compile(r"[^\w\- ]")
_MAX_HEADING_SOURCE: Final = 2_000
_MAX_ANCHOR_LINE: Final = 500
"""A longer block is text: the pattern's time grows with the square of its blanks."""


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    # Inline parsing is the slow part, and only headings need it.
    return MarkdownIt("commonmark").enable("table").disable("inline")


@lru_cache(maxsize=1)
def _inline_parser() -> MarkdownIt:
    return MarkdownIt("commonmark")


def read_markdown(text: str) -> Content:
    """Blocks of the document in order; its first level-1 heading is the title, else its first heading."""
    lines = text.split("\n")
    outline, slugs = Outline(), _Slugs()
    blocks: list[Block] = []
    titles: list[tuple[int, str]] = []
    pending: str | None = None  # `<a name="x"></a>` on a line of its own belongs to the heading below it
    tokens = _parser().parse(text)
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.level or token.map is None or token.nesting < 0:
            continue
        if token.type == "heading_open" and following is not None:
            title, explicit = heading(following.content[:_MAX_HEADING_SOURCE])
            slug = slugs.take(title)
            outline.open(int(token.tag[1:]), title, explicit or pending or slug)
            titles.append((int(token.tag[1:]), title))
            pending = None
        elif block := _block(token, lines, outline):
            is_anchor = len(block.text) <= _MAX_ANCHOR_LINE and _ONLY_ANCHORS.fullmatch(block.text)
            anchor = _HTML_ANCHOR.search(block.text) if is_anchor else None
            pending = anchor.group(1) if anchor else None
            if anchor is None:
                blocks.append(block)
    first = next((title for level, title in titles if level == 1), titles[0][1] if titles else "")
    return Content(blocks=tuple(blocks), title=first)


def _block(token: Token, lines: list[str], outline: Outline) -> Block | None:
    if token.type in _NO_TEXT or token.map is None:
        return None
    text = "\n".join(lines[token.map[0] : token.map[1]]).strip("\n").rstrip()
    if not text.strip():
        return None
    return Block(text, section=outline.section, anchor=outline.anchor, kind=_KINDS.get(token.type, "text"))


def heading(source: str) -> tuple[str, str | None]:
    """Title of a heading as a reader sees it, and the id it gives itself: `{ #id }` or `<a id="…">`."""
    attributes = _ATTRIBUTES.search(source)
    title = source[: attributes.start()] if attributes else source
    inline_anchor = _HTML_ANCHOR.search(title)
    explicit = attributes.group("id") if attributes else inline_anchor.group(1) if inline_anchor else None
    return one_line(_plain(title)), explicit


def _plain(source: str) -> str:
    children = _inline_parser().parseInline(source)[0].children or []
    return "".join(
        " " if child.type in {"softbreak", "hardbreak"} else child.content
        for child in children
        if child.type != "html_inline"
    )


def github_slug(title: str) -> str:
    """Anchor that GitHub gives a heading: lower case, punctuation dropped, a hyphen for each space."""
    return _NOT_IN_SLUG.sub("", title.lower()).strip().replace(" ", "-")


class _Slugs:
    """Slugs of one document: repeated titles are numbered."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def take(self, title: str) -> str | None:
        slug = github_slug(title)
        if not slug:
            return None
        count = self._taken.get(slug, 0)
        self._taken[slug] = count + 1
        return f"{slug}-{count}" if count else slug
