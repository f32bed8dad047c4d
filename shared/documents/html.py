"""HTML: what a reader of the page reads, walked without recursion (pages nest as deep as they like)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from bs4 import BeautifulSoup, Tag
from bs4.element import NavigableString, PageElement, PreformattedString

from shared.documents.html_page import HEADINGS, anchor_of, drop_furniture, main_part, text_of
from shared.documents.html_table import is_data_table, table_lines
from shared.documents.metadata import language_code
from shared.documents.model import Block, BlockKind, Content
from shared.documents.outline import Outline
from shared.documents.text import clean, one_line

_LISTS: Final = frozenset({"ul", "ol", "menu"})
_INLINE: Final = frozenset(
    {"a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i"}
    | {"img", "ins", "kbd", "label", "mark", "math", "q", "rb", "rp", "rt", "ruby", "s", "samp", "small", "span"}
    | {"strike", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr"}
)
_BLANK: Final = re.compile(r"[ \t\n]+")
_BLANK_RUN: Final = re.compile(r" {2,}")
_AROUND_BREAK: Final = re.compile(r" *\n *")
_XML_DECLARATION: Final = re.compile(r"\s*<\?xml[^>]*\?>")
_CHARSET: Final = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w.:-]+)|<\?xml[^>]+encoding=[\"']([\w.:-]+)", re.I)


def declared_encoding(raw: bytes) -> str | None:
    """What the page itself says it is encoded in."""
    match = _CHARSET.search(raw[:4096])
    return (match.group(1) or match.group(2)).decode("ascii") if match else None


def read_html(text: str) -> Content:
    """Blocks of the page's main part; its first level-1 heading is the title, else its `<title>`."""
    # The line break keeps BeautifulSoup from warning that a text without tags looks like a file name.
    soup = BeautifulSoup("\n" + _XML_DECLARATION.sub("", text, count=1), "lxml")
    page_title = one_line(soup.title.get_text()) if soup.title else ""
    language = language_code(soup.html.get("lang") or soup.html.get("xml:lang")) if soup.html else ""
    drop_furniture(soup)
    walk = _Walk()
    walk.through(main_part(soup))
    return Content(blocks=tuple(walk.blocks), title=walk.title or page_title, language=language)


class _Walk:
    """Collects blocks in document order. `blocks` and `title` are what it found."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.title = ""
        self._outline = Outline()
        self._inline: list[str] = []
        self._list_depth = 0
        self._list_lines: list[str] = []
        self._bullet = False

    def through(self, root: Tag) -> None:
        # Each entry still to visit, or the name of an element to close.
        ahead: list[PageElement | str] = [root]
        while ahead:
            node = ahead.pop()
            if isinstance(node, Tag):
                ahead.extend(self._enter(node))
            elif isinstance(node, NavigableString):
                if not isinstance(node, PreformattedString):
                    self._inline.append(_BLANK.sub(" ", node))
            elif isinstance(node, str):
                self._leave(node)
        self._end_list()

    def _enter(self, tag: Tag) -> Iterator[PageElement | str]:
        """Takes in what stands as a whole, or gives the children to visit, last first."""
        if tag.name in HEADINGS:
            self._heading(tag)
        elif tag.name == "pre":
            self._whole(clean(tag.get_text()).strip("\n").rstrip(), "code")
        elif tag.name == "table" and is_data_table(tag):
            self._whole("\n".join(table_lines(tag)), "table")
        elif tag.name == "br":
            self._inline.append("\n")
        else:
            if tag.name not in _INLINE:
                self._open(tag.name)
                yield tag.name
            yield from reversed(tag.contents)

    def _open(self, name: str) -> None:
        self._flush()
        self._list_depth += name in _LISTS
        self._bullet = self._bullet or name == "li"

    def _leave(self, name: str) -> None:
        self._flush()
        if name == "li":
            self._bullet = False
        elif name in _LISTS:
            self._list_depth -= 1
            if self._list_depth == 0:
                self._end_list()

    def _heading(self, tag: Tag) -> None:
        title = text_of(tag)
        self._end_list()
        self._outline.open(int(tag.name[1]), title, anchor_of(tag))
        if tag.name == "h1" and not self.title:
            self.title = title

    def _flush(self) -> None:
        text = _AROUND_BREAK.sub("\n", _BLANK_RUN.sub(" ", "".join(self._inline))).strip()
        self._inline.clear()
        if not text:
            return
        if self._list_depth:
            indent = "  " * min(self._list_depth - 1, 8)
            mark = "- " if self._bullet else "  "
            self._list_lines.append(indent + mark + text.replace("\n", "\n" + indent + "  "))
            self._bullet = False
        else:
            self._add(text, "text")

    def _end_list(self) -> None:
        self._flush()
        if self._list_lines:
            self._add("\n".join(self._list_lines), "text")
            self._list_lines = []

    def _whole(self, text: str, kind: BlockKind) -> None:
        self._end_list()
        if text.strip():
            self._add(text, kind)

    def _add(self, text: str, kind: BlockKind) -> None:
        self.blocks.append(Block(text, section=self._outline.section, anchor=self._outline.anchor, kind=kind))
