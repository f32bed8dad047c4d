"""DOCX: mammoth makes HTML of it, with headings, lists and tables, and that is read as any other page."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Final
from xml.etree import ElementTree
from zipfile import BadZipFile

import mammoth

from shared.documents.docx_package import Parts, pack, unpack
from shared.documents.html import read_html
from shared.documents.model import Content, UnreadableDocument
from shared.documents.text import clean, one_line

# What mammoth lets through on damaged files, besides the errors of zip and XML.
_DAMAGE: Final = (BadZipFile, ElementTree.ParseError, LookupError, ValueError, TypeError, AttributeError, OSError,
                  RecursionError)  # fmt: skip
_PROPERTIES: Final = "docProps/core.xml"
_TITLE: Final = "{http://purl.org/dc/elements/1.1/}title"
_STYLES: Final = "p[style-name='Title'] => h1:fresh\np[style-name='Code'] => pre:separator('\\n')"
_NOTE_BACK_LINK: Final = re.compile(r' ?<a href="#[^"]*">↑</a>')


def read_docx(raw: bytes, path: Path, *, max_unpacked_bytes: int) -> Content:
    """Blocks by heading; the title is that of the file's properties, else its first heading.

    Raises UnreadableDocument for what is no DOCX, is encrypted, damaged, or unpacks to more than that many bytes.
    """
    parts = unpack(raw, path, max_unpacked_bytes=max_unpacked_bytes)
    try:
        html = mammoth.convert_to_html(
            io.BytesIO(pack(parts)),
            style_map=_STYLES,
            include_embedded_style_map=False,
            convert_image=_no_image,
        ).value
        title = _title(parts)
    except _DAMAGE as error:
        raise UnreadableDocument(
            path, f"not a readable DOCX ({_said(error)})", "open it and save it again as .docx"
        ) from error
    content = read_html(clean(_NOTE_BACK_LINK.sub("", html)))
    return replace(content, title=title or content.title or _first_heading(content), language="")


def _no_image(_image: object) -> list[object]:
    return []


def _said(error: BaseException) -> str:
    return one_line(str(error)) or type(error).__name__


def _title(parts: Parts) -> str:
    properties = parts.get(_PROPERTIES)
    if not properties:
        return ""
    return one_line(clean(ElementTree.fromstring(properties).findtext(_TITLE) or ""))  # noqa: S314 - has no DTD


def _first_heading(content: Content) -> str:
    return next((block.section for block in content.blocks if block.section), "")
