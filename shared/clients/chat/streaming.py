"""A streamed chat completion, put together again as it is heard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from shared.clients.chat.replies import message_text, without_reasoning
from shared.errors import ModelUnavailable

Said: TypeAlias = Callable[[str], None]
"""Hears all of the text so far, without reasoning; shorter than before where another try began."""

_TAG_CHARS: Final = 20
"""Longer than any tag of reasoning."""
_THOUGHT_ENDS: Final = ("</think>", "</thinking>", "</thought>", "</reasoning>")


class StreamedReply:
    """Hears the chunks of one completion (`object: chat.completion.chunk`) and tells `said` what they add up to.

    `hides_opening`: the endpoint's template swallows the tag that opens the reasoning, so nothing is told before one
    that closes it.
    """

    def __init__(self, said: Said, *, hides_opening: bool = False) -> None:
        self._said = said
        self._hides_opening = hides_opening
        self.begin()

    def begin(self) -> None:
        self._text = ""
        self._told = ""
        self._finish_reason = ""
        self._usage: Any = None

    def hear(self, event: Any) -> None:
        """Raises ModelUnavailable for an error in the middle of the stream."""
        if not isinstance(event, Mapping):
            return
        if event.get("error"):
            raise ModelUnavailable(f"the stream broke off: {str(event['error'])[:200]}")
        self._usage = event.get("usage") or self._usage
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else {}
        self._finish_reason = str(choice.get("finish_reason") or self._finish_reason)
        delta = choice.get("delta")
        if isinstance(delta, Mapping) and (piece := message_text(delta)):
            self._text += piece
            self._tell(piece)

    def end(self) -> None:
        """Raises ModelUnavailable where the end of the reply is missing."""
        if not self._finish_reason:
            raise ModelUnavailable("the stream ended in the middle")

    @property
    def opening_was_hidden(self) -> bool:
        """Whether reasoning came without the tag that opens it."""
        return any(tag in self._text for tag in _THOUGHT_ENDS) and "<think" not in self._text

    @property
    def reply(self) -> dict[str, Any]:
        """The whole, as an endpoint would have sent it at once."""
        message = {"role": "assistant", "content": self._text}
        return {"choices": [{"message": message, "finish_reason": self._finish_reason}], "usage": self._usage}

    def _tell(self, piece: str) -> None:
        if self._told and "<" not in self._text[-len(piece) - _TAG_CHARS :]:  # goes on as it was: no tag to look for
            self._told += piece
            self._said(self._told)
            return
        if self._hides_opening and not any(tag in self._text for tag in _THOUGHT_ENDS):
            return
        begins = self._text.lstrip()
        if begins.startswith("<") and ">" not in begins:  # perhaps the half of a tag
            return
        visible = without_reasoning(self._text)
        if visible.strip() and visible != self._told:
            self._told = visible
            self._said(visible)
