"""A chat model over any OpenAI-compatible endpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from shared.clients.chat.protocol import Completion, Message, ReplySchema, estimated_tokens
from shared.clients.chat.replies import read_completion
from shared.clients.chat.streaming import Said, StreamedReply
from shared.clients.http import JsonService
from shared.clients.status import RequestRefused
from shared.settings import Prices

_FORMAT_WORDS: Final = ("response_format", "json_schema", "json_object", "guided", "grammar", "schema")
"""One of these is in every refusal of a response format."""


class HttpChat:
    """POST {base_url}/chat/completions. Waits for a free slot, tries transient failures again, learns what is refused.

    OpenAI's reasoning models refuse `max_tokens` and `temperature`, many servers a JSON schema and some any
    `response_format`; after the first refusal they are asked otherwise.
    """

    def __init__(
        self,
        service: JsonService,
        model: str,
        *,
        swapped: Callable[[], str | None] = lambda: None,
        prices: Prices | None = None,
    ) -> None:
        """`swapped` tells the model that an operator wants instead, if any."""
        self._service = service
        self._model = model
        self._swapped = swapped
        self._prices = prices or {}
        self._limit_field = "max_tokens"
        self._takes_temperature = True
        self._rung = 0
        """Of `ReplySchema.formats`."""
        self._counts_streams = True
        self._hides_opening = False

    @property
    def name(self) -> str:
        return self._swapped() or self._model

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        schema: ReplySchema | None = None,
        timeout_s: float,
        needed: Callable[[], bool] | None = None,
        said: Said | None = None,
    ) -> Completion:
        end = time.monotonic() + timeout_s
        tokens = sum(estimated_tokens(each["content"]) for each in messages) + max_tokens
        hearer = StreamedReply(said, hides_opening=self._hides_opening) if said is not None else None
        while True:
            rung = self._rung
            body = self._body(messages, max_tokens, temperature, schema.formats[rung] if schema else None)
            if hearer is not None:
                body |= {
                    "stream": True,
                    **({"stream_options": {"include_usage": True}} if self._counts_streams else {}),
                }
            try:
                reply = await self._service.post(
                    "chat/completions",
                    body,
                    timeout_s=max(0.0, end - time.monotonic()),
                    tokens=tokens,
                    needed=needed,
                    hearer=hearer,
                )
            except RequestRefused as refused:
                if not self._learn(refused, body, rung):
                    raise
            else:
                completion = read_completion(self._heard(hearer) if reply is None and hearer else reply, messages)
                return self._priced(completion, body["model"])

    def _priced(self, completion: Completion, model: str) -> Completion:
        cost = None
        if model in self._prices:
            prompt, reply = self._prices[model]
            cost = (completion.prompt_tokens * prompt + completion.completion_tokens * reply) / 1_000_000
        return replace(completion, model=model, cost=cost)

    def _heard(self, hearer: StreamedReply) -> Any:
        self._hides_opening = self._hides_opening or hearer.opening_was_hidden
        return hearer.reply

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
        body: dict[str, Any] = {"model": self.name, "messages": list(messages), self._limit_field: max_tokens}
        if self._takes_temperature:
            body["temperature"] = temperature
        if response_format is not None:
            body["response_format"] = dict(response_format)
        return body

    def _learn(self, refused: RequestRefused, body: Mapping[str, Any], rung: int) -> bool:
        """Whether the refusal taught a way to ask that differs from the one refused."""
        if "max_completion_tokens" in refused.told and "max_tokens" in body:
            self._limit_field = "max_completion_tokens"
            return True
        if "temperature" in refused.told and "temperature" in body:
            self._takes_temperature = False
            return True
        if "stream_options" in refused.told and "stream_options" in body:
            self._counts_streams = False
            return True
        if "response_format" in body and any(word in refused.told.lower() for word in _FORMAT_WORDS):
            self._rung = max(self._rung, rung + 1)
            return True
        return False
