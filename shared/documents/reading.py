"""A file becomes documents: the reader of its format finds the content, this adds the file's own facts."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from shared.documents.csv_table import read_csv
from shared.documents.docx import read_docx
from shared.documents.finding import SUFFIXES
from shared.documents.html import declared_encoding, read_html
from shared.documents.jsonl import read_jsonl
from shared.documents.markdown import read_markdown
from shared.documents.metadata import InvalidMetadata, language_code, metadata_of, split_front_matter
from shared.documents.model import SECTION_SEPARATOR, Block, Content, SourceDocument, UnreadableDocument, hash_content
from shared.documents.pdf import read_pdf
from shared.documents.plain import read_plain
from shared.documents.settings import ReadSettings
from shared.documents.text import clean, decode, one_line
from shared.language import detect_language

_TEXT_READERS: Final[dict[str, Callable[[str], Content]]] = {
    ".md": read_markdown,
    ".markdown": read_markdown,
    ".html": read_html,
    ".htm": read_html,
    ".txt": read_plain,
    ".csv": read_csv,
    ".tsv": read_csv,
}
_LANGUAGE_SAMPLE_CHARS: Final = 4_000


def read(path: Path, *, root: Path, settings: ReadSettings | None = None) -> list[SourceDocument]:
    """Documents in the file: one, or one for each line of a JSONL file. Ids are relative to `root`."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UnreadableDocument(path, f"files of type {suffix or 'none'} are not read", f"convert it to {SUFFIXES}")
    identity = _identity(path, root)
    settings = settings or ReadSettings()
    raw = _bytes_of(path, settings.max_bytes)
    if suffix == ".jsonl":
        return [
            _document(f"{identity}#{record.key}", record.url or identity, record.content, title=record.content.title)
            for record in read_jsonl(decode(raw, path), path)
        ]
    content = _content(raw, path, suffix, settings)
    if not content.blocks:
        raise UnreadableDocument(path, "there is no text in it", "leave it out, or check what it should hold")
    return [_document(identity, identity, content, title=content.title or _title_from(path))]


def _content(raw: bytes, path: Path, suffix: str, settings: ReadSettings) -> Content:
    if suffix == ".pdf":
        return read_pdf(raw, path)
    if suffix == ".docx":
        return read_docx(raw, path, max_unpacked_bytes=settings.max_unpacked_bytes)
    return _read_text(raw, path, suffix)


def _identity(path: Path, root: Path) -> str:
    # Not resolve(): a linked file is known by where it stands, not by where it points.
    file, base = Path(os.path.abspath(path)), Path(os.path.abspath(root))  # noqa: PTH100
    if not file.is_relative_to(base):
        raise UnreadableDocument(path, f"it is not below {root}", "ingest it with a root that holds it")
    return clean(file.relative_to(base).as_posix()) or file.name


def _bytes_of(path: Path, max_bytes: int) -> bytes:
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise UnreadableDocument(
                path, f"{size} bytes are more than {max_bytes}", "split it, or raise CAIRN_READ_MAX_BYTES"
            )
        raw = path.read_bytes()
    except OSError as error:
        raise UnreadableDocument(path, f"can't be read ({error.strerror})", "check path and permissions") from error
    if not raw.strip():
        raise UnreadableDocument(path, "the file is empty", "leave it out, or fill it")
    return raw


def _read_text(raw: bytes, path: Path, suffix: str) -> Content:
    declared = declared_encoding(raw) if suffix in {".html", ".htm"} else None
    text = clean(decode(raw, path, declared=declared))
    try:
        values, body = split_front_matter(text)
        metadata = metadata_of(values)
    except InvalidMetadata as error:
        raise UnreadableDocument(path, str(error), "correct the lines between the --- at its top") from error
    content = _TEXT_READERS[suffix](body)
    return replace(
        content,
        title=(one_line(given) if isinstance(given := values.get("title"), str) else "") or content.title,
        language=language_code(values.get("lang") or values.get("language")) or content.language,
        metadata=metadata,
    )


def _title_from(path: Path) -> str:
    return one_line(clean(path.stem).replace("_", " ").replace("-", " ")) or path.name


def _document(document_id: str, uri: str, content: Content, *, title: str) -> SourceDocument:
    language = content.language or detect_language(_sample(content.blocks))
    blocks = tuple(replace(block, section=_below_title(block.section, title)) for block in content.blocks)
    return SourceDocument(
        document_id=document_id,
        title=title,
        uri=uri,
        language=language,
        metadata=content.metadata,
        content_hash=hash_content(title=title, uri=uri, language=language, metadata=content.metadata, blocks=blocks),
        blocks=blocks,
    )


def _below_title(section: str, title: str) -> str:
    """The heading path without a first heading that only repeats the document's title."""
    return "" if section == title else section.removeprefix(f"{title}{SECTION_SEPARATOR}")


def _sample(blocks: tuple[Block, ...]) -> str:
    """The beginning of the document's prose; code speaks English anywhere."""
    found, size = [], 0
    for block in [block for block in blocks if block.kind != "code"] or blocks:
        found.append(block.text[:_LANGUAGE_SAMPLE_CHARS])
        size += len(found[-1])
        if size >= _LANGUAGE_SAMPLE_CHARS:
            break
    return "\n".join(found)
