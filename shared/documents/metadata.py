"""Facts about a document that its author wrote down: YAML front matter, or the keys of a JSONL record."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Final

from frontmatter.default_handlers import YAMLHandler
from pydantic import TypeAdapter, ValidationError
from yaml import YAMLError

from shared.contracts import Name, Role
from shared.documents.model import Metadata
from shared.ingestion import moment_s

_NAMES: Final = ("tenant", "collection")
_TEXTS: Final = ("region", "owner")
_MOMENTS: Final = ("valid_from", "valid_to")
_OPENING: Final = re.compile(r"---[ \t]*\n")
_KEY: Final = re.compile(r"[\w-]+[ \t]*:")
_LANGUAGE: Final = re.compile(r"([a-z]{2,3})(?:[-_]|$)", re.IGNORECASE)
_NAME: Final[TypeAdapter[str]] = TypeAdapter(Name)
_ROLE: Final[TypeAdapter[str]] = TypeAdapter(Role)


class InvalidMetadata(ValueError):
    """What stands there can't be meant; the reader adds file or line."""


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Keys (in lower case) and the text below; no keys where there is no front matter.

    Anything doubtful is an error: an ACL that is not understood must never make a document public.
    """
    opening = _OPENING.match(text)
    if opening is None:
        return {}, text
    handler = YAMLHandler()
    try:
        head, body = handler.split(text)
    except ValueError:
        if _KEY.match(text, opening.end()):
            raise InvalidMetadata("the front matter has no closing ---") from None
        return {}, text
    try:
        values = handler.load(head)
    except (YAMLError, ValueError, RecursionError) as error:
        raise InvalidMetadata(f"the front matter is not valid YAML ({_first_line(error)})") from error
    if values is None:
        return {}, body
    if not isinstance(values, dict):
        raise InvalidMetadata("the front matter is not a list of `key: value` lines")
    return {str(key).lower(): value for key, value in values.items()}, body


def _first_line(error: BaseException) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f", line {mark.line + 2}" if mark is not None else ""
    return f"{getattr(error, 'problem', None) or str(error).partition(chr(10))[0]}{where}"


def metadata_of(values: Mapping[str, Any]) -> Metadata:
    """The keys that Cairn knows, checked; all others are the author's own business."""
    found: Metadata = {}
    if "acl" in values:
        found["acl"] = _acl(values["acl"])
    for key in _NAMES:
        if values.get(key) is not None:
            found[key] = _checked(_NAME, key, str(values[key]))
    for key in _TEXTS:
        if values.get(key) is not None:
            found[key] = _text(key, values[key])
    found.update(_validity(values))
    return found


def _validity(values: Mapping[str, Any]) -> dict[str, str]:
    """First and last moment at which the document holds, as ISO 8601; a last day holds to its end."""
    found = {key: _moment(key, values[key]) for key in _MOMENTS if values.get(key) is not None}
    if len(found) == 2:
        start, end = (found[key] for key in _MOMENTS)
        if moment_s(start, end=False) > moment_s(end, end=True):
            raise InvalidMetadata(f"valid_from {start} is after valid_to {end}")
    return found


def _moment(key: str, value: Any) -> str:
    # YAML makes dates of what looks like one; a number would be a guess (a year, or seconds since when?).
    given = value.isoformat() if isinstance(value, date) else value
    if isinstance(given, str):
        try:
            return _normal(given.strip())
        except ValueError:
            pass
    raise InvalidMetadata(f"{key} is {value!r}, not a date such as 2026-03-31 or 2026-03-31T18:00+02:00")


def _normal(text: str) -> str:
    """A date as YYYY-MM-DD, a date and time as `datetime.isoformat` writes it. Raises ValueError for anything else."""
    moment_s(text, end=False)
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        return datetime.fromisoformat(text).isoformat()


def _acl(value: Any) -> list[str]:
    roles = value.split(",") if isinstance(value, str) else value
    if not isinstance(roles, list) or not roles or not all(isinstance(role, str) for role in roles):
        raise InvalidMetadata(f"acl is {value!r}, not a list of role names such as [staff, hr]")
    return [_checked(_ROLE, "acl", role) for role in roles]


def _checked(form: TypeAdapter[str], key: str, value: str) -> str:
    try:
        return form.validate_python(value)
    except ValidationError as error:
        raise InvalidMetadata(f"{key} is {value!r}: {error.errors()[0]['msg']}") from error


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
        raise InvalidMetadata(f"{key} is {value!r}, not a text")
    return str(value).strip()


def language_code(value: object) -> str:
    """ISO 639-1 or 639-3 code of a language tag such as `ru` or `fr-CA`; empty where there is none."""
    match = _LANGUAGE.match(value.strip()) if isinstance(value, str) else None
    return match.group(1).lower() if match else ""
