"""Which part of an HTML page is its content, and where its headings can be linked to."""

from __future__ import annotations

from itertools import islice
from typing import Final

from bs4 import BeautifulSoup, Tag

from shared.documents.text import one_line

HEADINGS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})

_FURNITURE: Final = frozenset(
    {"script", "style", "noscript", "template", "nav", "footer", "aside", "form", "button", "select", "svg"}
    | {"iframe", "object", "canvas"}
)
_FURNITURE_ROLES: Final = frozenset({"navigation", "search", "banner", "contentinfo", "complementary"})
_FURNITURE_CLASSES: Final = frozenset(
    # permalink signs, DocBook's navigation and tables of contents, Sphinx's sidebars
    {"headerlink", "navheader", "navfooter", "toc", "sphinxsidebar", "related"}
)
_SECTIONS: Final = ("section", "div", "article")
_ARTICLES: Final = frozenset({"article", "main"})
_ARTICLE_REACH: Final = 50
"""Levels above a header in which the article that it opens is looked for: pages nest as deep as they like."""
_ANCHOR_REACH: Final = 6
"""Levels above a heading in which the element that stands for its section is looked for."""


def drop_furniture(soup: BeautifulSoup) -> None:
    """Removes what surrounds the content: scripts, navigation, banners, forms, permalink signs."""
    for tag in [tag for tag in soup.find_all(True) if _is_furniture(tag)]:
        if not tag.decomposed:
            tag.decompose()


def _is_furniture(tag: Tag) -> bool:
    if tag.name == "header":
        # The header of an article holds its title; that of the page holds the site's.
        return not any(parent.name in _ARTICLES for parent in islice(tag.parents, _ARTICLE_REACH))
    return (
        tag.name in _FURNITURE
        or tag.get("role") in _FURNITURE_ROLES
        or not _FURNITURE_CLASSES.isdisjoint(tag.get_attribute_list("class"))
    )


def main_part(soup: BeautifulSoup) -> Tag:
    """The one main element, else the body, else everything."""
    mains = soup.find_all("main") or soup.find_all(role="main")
    return mains[0] if len(mains) == 1 else soup.body or soup


def anchor_of(heading: Tag) -> str | None:
    """Fragment that leads to the heading: its id, an anchor in it, or the id of the section that it opens."""
    own = heading.get("id")
    if own:
        return str(own)
    for link in heading.find_all("a"):
        if name := link.get("id") or link.get("name"):
            return str(name)
    return _section_id(heading)


def _section_id(heading: Tag) -> str | None:
    for depth, parent in enumerate(heading.parents):
        if depth >= _ANCHOR_REACH or parent.find(list(HEADINGS)) is not heading:
            return None
        if parent.name in _SECTIONS and parent.get("id"):
            return str(parent["id"])
    return None


def text_of(tag: Tag) -> str:
    """Text of an element on one line, without the permalink sign some generators add."""
    return one_line(tag.get_text()).rstrip("¶").rstrip()
