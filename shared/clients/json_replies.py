"""The one JSON object in a chat model's reply. Pure; mending what is broken is json-repair's."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

import json_repair

from shared.clients.chat.replies import without_reasoning

_MAX_CHARS: Final = 10_000
_MAX_OPENED: Final = 40
_TOO_DEEP: Final = re.compile(r"(?:[\[{]\s*){6}")
"""What never closes keeps json-repair busy for seconds, and all other jobs of the worker waiting."""
_MAX_DEPTH: Final = 4


def object_in(text: str, keys: Collection[str]) -> Mapping[str, Any] | None:
    """The object in a reply that has one of these keys: bare, fenced, in prose, in an envelope, or broken.

    Of several the last: models think aloud first. None where there is none.
    """
    said = without_reasoning(text[:_MAX_CHARS])
    return _named(mended(said), keys) if "{" in said else None


def mended(text: str) -> Any:
    """What json-repair makes of JSON that may be broken; None for what is too long or too nested to be tried."""
    if len(text) > _MAX_CHARS or len(re.findall(r"[\[{]", text)) > _MAX_OPENED or _TOO_DEEP.search(text):
        return None
    try:
        return json_repair.loads(text)
    except (ValueError, RecursionError):
        return None


def _named(found: Any, keys: Collection[str], depth: int = 0) -> Mapping[str, Any] | None:
    if isinstance(found, Mapping) and not found.keys().isdisjoint(keys):
        return found
    if depth == _MAX_DEPTH:
        return None
    inner = found.values() if isinstance(found, Mapping) else found if isinstance(found, list) else ()
    named = [each for each in (_named(each, keys, depth + 1) for each in inner) if each is not None]
    return named[-1] if named else None
