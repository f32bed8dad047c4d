"""The zip that a DOCX is, unpacked within bounds before anything parses it."""

from __future__ import annotations

import copy
import io
import zlib
from pathlib import Path
from typing import Final
from xml.parsers import expat
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from shared.documents.model import UnreadableDocument

Parts = dict[str, bytes]
"""XML parts by name; pictures and fonts are left packed."""

_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_CHUNK_BYTES: Final = 65_536
_ENCRYPTED: Final = 0x1
_SAVE_AGAIN: Final = "open it and save it again as .docx"
_DAMAGE: Final = (BadZipFile, zlib.error, EOFError, LookupError, ValueError, NotImplementedError, OSError)


class _Forbidden(Exception):
    """Why a part is not even parsed."""


def unpack(raw: bytes, path: Path, *, max_unpacked_bytes: int) -> Parts:
    """The XML parts, none of which declares entities, and all within what the zip's directory says.

    Raises UnreadableDocument where the directory adds up to more than `max_unpacked_bytes`, or lies.
    """
    if raw.startswith(_OLE):
        raise UnreadableDocument(
            path, "it is encrypted, or an old .doc with a new name", "save it as .docx without a password"
        )
    try:
        with ZipFile(io.BytesIO(raw)) as package:
            return _parts(package, path, max_unpacked_bytes)
    except _Forbidden as reason:
        raise UnreadableDocument(path, str(reason), _SAVE_AGAIN) from None
    except _DAMAGE as error:
        raise UnreadableDocument(path, f"not a readable DOCX ({error})", _SAVE_AGAIN) from error


def _parts(package: ZipFile, path: Path, max_unpacked_bytes: int) -> Parts:
    members = package.infolist()
    total = sum(member.file_size for member in members)
    if total > max_unpacked_bytes:
        raise UnreadableDocument(
            path,
            f"it unpacks to {total} bytes, more than {max_unpacked_bytes}",
            "split it, or raise CAIRN_READ_MAX_UNPACKED_BYTES",
        )
    found = {member.filename: _content(package, member) for member in members if _is_xml(member.filename)}
    for name, content in found.items():
        _forbid_entities(name, content)
    return found


def _is_xml(name: str) -> bool:
    return name.lower().endswith((".xml", ".rels"))


def _content(package: ZipFile, member: ZipInfo) -> bytes:
    if member.flag_bits & _ENCRYPTED:
        raise _Forbidden("it is encrypted")
    if member.compress_type not in {ZIP_STORED, ZIP_DEFLATED}:
        raise _Forbidden(f"{member.filename} is compressed in a way that no DOCX is")
    # zipfile stops without a word at the size that the directory claims; told one byte more, it shows the lie.
    told = copy.copy(member)
    told.file_size += 1
    content = bytearray()
    with package.open(told) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            content += chunk
    if len(content) != member.file_size:
        raise _Forbidden(f"{member.filename} does not unpack to the {member.file_size} bytes that it claims")
    return bytes(content)


def _forbid_entities(name: str, content: bytes) -> None:
    def refuse(*_declaration: object) -> None:
        raise _Forbidden(f"{name} declares a document type, which no DOCX does and entity bombs need")

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise _Forbidden(f"{name} is not valid XML ({error})") from error


def pack(parts: Parts) -> bytes:
    """A zip of these parts, not compressed: it can't unpack to more than it is."""
    target = io.BytesIO()
    with ZipFile(target, "w", ZIP_STORED) as package:
        for name, content in parts.items():
            package.writestr(ZipInfo(name), content)
    return target.getvalue()
