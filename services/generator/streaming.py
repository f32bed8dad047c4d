"""What may be shown of a reply while it is still being written. Pure."""

from __future__ import annotations

import re
from typing import Final

from services.generator.markers import settle_growing
from services.generator.prompts import NO_ANSWER
from services.generator.reading import SAYS_NO, cleaned

_HALF_NO: Final = "|".join(NO_ANSWER[:length].replace("_", "[_ ]") for length in range(len(NO_ANSWER), 0, -1))
_NO: Final = re.compile(rf"{SAYS_NO.pattern}|(?<!\w)(?i:{_HALF_NO})\Z")
"""NO_ANSWER, or what may become it."""
_DATA: Final = re.compile(r"\s*(?:\{|`{1,3}(?:j(?:s(?:on?)?)?)?\s*(?:\{|\Z))")


class Provisional:
    """The settled beginning of a growing reply. What was shown stays as it is, unless the reply begins anew."""

    def __init__(self, known: int, *, max_chars: int = 100_000) -> None:
        """`known` passages have numbers; of a longer reply than `max_chars` only the beginning is looked at."""
        self._known, self._max_chars = known, max_chars
        self._raw = ""
        self._shown = ""

    def hear(self, raw: str) -> str:
        """What may be shown of `raw`: no half marker, no number of no passage, no NO_ANSWER, no data."""
        raw = raw[: self._max_chars]
        if not raw.startswith(self._raw):
            self._shown = ""
        if raw == self._raw or _DATA.match(raw):
            return self._shown
        text = _NO.split(settle_growing(cleaned(raw), self._known), maxsplit=1)[0].rstrip()
        self._raw = raw
        # A later sign may change how an earlier one is read: then nothing more is shown before the checked answer.
        if text.startswith(self._shown) and any(map(str.isalnum, text)):
            self._shown = text
        return self._shown
