"""A chat model: messages in, one completion out, over any OpenAI-compatible endpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from shared.clients.http import Endpoint, JsonService, RequestRefused
from shared.errors import CairnError, InvalidModelReply
from shared.settings import LlmSettings

Message = dict[str, str]
"""`role` (system, user or assistant) and `content`."""

_TAG: Final = re.compile(r"<(?P<closing>/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_BEGINS_THINKING: Final = re.compile(r"\s*<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_BEGINS_WITH_DATA: Final = re.compile(r"\s*(?:[{\[\"]|```)")
_HARMONY_FINAL: Final = re.compile(r"<\|channel\|>\s*final\s*<\|message\|>")
_CYRILLIC: Final = re.compile(r"[\u0400-\u04ff]")


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model said, without its reasoning, and what it cost; `estimated` where the endpoint didn't count."""

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    estimated: bool


@dataclass(frozen=True, slots=True)
class NoCompletion:
    """Why there is no completion: a value for those who can do without one."""

    reason: str


class ChatModel(Protocol):
    """Anything that completes a conversation."""

    @property
    def name(self) -> str:
        """The model, as outcomes and trails name it."""
        ...

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        response_format: Mapping[str, Any] | None = None,
        timeout_s: float,
    ) -> Completion:
        """The model's next turn; `timeout_s` covers queueing and retries.

        Raises ModelUnavailable, Misconfigured, RequestRefused (such a request is not taken) or InvalidModelReply.
        """
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...


class HttpChat:
    """POST {base_url}/chat/completions. Waits for a free slot, tries transient failures again, learns what is refused.

    OpenAI's reasoning models refuse `max_tokens` and `temperature`; after the first refusal they are asked otherwise.
    """

    def __init__(self, service: JsonService, model: str) -> None:
        self._service = service
        self._model = model
        self._limit_field = "max_tokens"
        self._takes_temperature = True

    @property
    def name(self) -> str:
        return self._model

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        response_format: Mapping[str, Any] | None = None,
        timeout_s: float,
    ) -> Completion:
        while True:
            body = self._body(messages, max_tokens, temperature, response_format)
            try:
                return read_completion(
                    await self._service.post("chat/completions", body, timeout_s=timeout_s), messages
                )
            except RequestRefused as refused:
                if not self._learn(refused, body):
                    raise

    async def aclose(self) -> None:
        """Close the connections."""
        await self._service.aclose()

    def _body(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        temperature: float,
        response_format: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._model, "messages": list(messages), self._limit_field: max_tokens}
        if self._takes_temperature:
            body["temperature"] = temperature
        if response_format is not None:
            body["response_format"] = dict(response_format)
        return body

    def _learn(self, refused: RequestRefused, body: Mapping[str, Any]) -> bool:
        """Whether the refusal taught a way to ask that differs from the one refused."""
        if "max_completion_tokens" in refused.told and "max_tokens" in body:
            self._limit_field = "max_completion_tokens"
            return True
        if "temperature" in refused.told and "temperature" in body:
            self._takes_temperature = False
            return True
        return False


def open_chat(settings: LlmSettings) -> HttpChat | None:
    """The chat model these settings name, or None where they name none. Nothing is asked yet; close it afterwards."""
    if settings.base_url is None:
        return None
    endpoint = Endpoint(settings.base_url, "CAIRN_LLM", settings.api_key)
    service = JsonService(endpoint, concurrency=settings.concurrency, timeout_s=settings.timeout_s)
    return HttpChat(service, settings.model)


async def completion_or_reason(
    chat: ChatModel,
    messages: Sequence[Message],
    *,
    max_tokens: int,
    response_format: Mapping[str, Any] | None = None,
    timeout_s: float,
) -> Completion | NoCompletion:
    """The completion, or why there is none. For callers that degrade, so that degrading stays their decision."""
    if timeout_s <= 0:
        return NoCompletion("no time left")
    try:
        return await chat.complete(
            messages, max_tokens=max_tokens, response_format=response_format, timeout_s=timeout_s
        )
    except CairnError as error:
        return NoCompletion(str(error))


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


def estimated_tokens(text: str) -> int:
    """About how many tokens `text` is: four characters each, in Cyrillic two and a half."""
    cyrillic = len(_CYRILLIC.findall(text))
    return round((len(text) - cyrillic) / 4 + cyrillic / 2.5)
