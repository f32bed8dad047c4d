"""Reading a chat completion: the text without its reasoning, and what it cost. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shared.clients.chat.protocol import Completion, Message, estimated_tokens
from shared.errors import InvalidModelReply

_TAG: Final = re.compile(r"<(?P<closing>/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_BEGINS_THINKING: Final = re.compile(r"\s*<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_BEGINS_WITH_DATA: Final = re.compile(r"\s*(?:[{\[\"]|```)")
_HARMONY_FINAL: Final = re.compile(r"<\|channel\|>\s*final\s*<\|message\|>")


def read_completion(reply: Any, messages: Sequence[Message]) -> Completion:
    """The completion in a decoded reply. Raises InvalidModelReply where there is none."""
    try:
        choice = reply["choices"][0]
        message = choice["message"]
        if not isinstance(message, Mapping):
            raise TypeError("message")  # noqa: TRY301  one way out for every wrong shape
    except (KeyError, IndexError, TypeError) as error:
        told = reply.get("error") if isinstance(reply, Mapping) else None
        raise InvalidModelReply(
            f"the chat endpoint's reply has no message{f': {told}' if told else ''}"[:300]
        ) from error
    text = without_reasoning(message_text(message))
    counted = _counted(reply.get("usage"))
    prompt, completion = counted or (
        sum(estimated_tokens(each["content"]) for each in messages),
        estimated_tokens(text),
    )
    return Completion(
        text=text,
        finish_reason=str(choice.get("finish_reason") or ""),
        prompt_tokens=prompt,
        completion_tokens=completion,
        estimated=counted is None,
    )


def _counted(usage: Any) -> tuple[int, int] | None:
    """Prompt and completion tokens as the endpoint counted them, or None."""
    found = usage if isinstance(usage, Mapping) else {}
    prompt, completion = found.get("prompt_tokens"), found.get("completion_tokens")
    if type(prompt) is not int or type(completion) is not int or prompt < 0 or completion < 0:
        return None
    return prompt, completion


def message_text(message: Mapping[str, Any]) -> str:
    """The text of a message whose content is a string, a list of typed parts, or absent (then "")."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part.get("text") if isinstance(part, Mapping) else part for part in content)
    return "".join(part for part in parts if isinstance(part, str))


def without_reasoning(text: str) -> str:
    """`text` without the reasoning it begins with; "" if the model was cut off while still reasoning.

    Handles <think> and its kin (also nested, or with the opening tag swallowed by the template) and harmony channels.
    A tag inside an answer or a JSON string is left alone.
    """
    begins_with_data = _BEGINS_WITH_DATA.match(text) is not None
    if not begins_with_data and "<|channel|>" in text:
        finals = list(_HARMONY_FINAL.finditer(text))
        return text[finals[-1].end() :] if finals else ""
    if not begins_with_data and (first := _TAG.search(text)) and first["closing"]:
        text = text[first.end() :]
    while _BEGINS_THINKING.match(text):
        end = _end_of_block(text)
        if end is None:
            return ""
        text = text[end:]
    return text


def _end_of_block(text: str) -> int | None:
    """Where the block that `text` begins with ends, blocks within it included."""
    depth = 0
    for tag in _TAG.finditer(text):
        depth += -1 if tag["closing"] else 1
        if depth == 0:
            return tag.end()
    return None
