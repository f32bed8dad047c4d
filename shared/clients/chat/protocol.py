"""A chat model as its callers see it: messages in, one completion out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from shared.contracts import StageUsage
from shared.errors import CairnError

Message = dict[str, str]
"""`role` (system, user or assistant) and `content`."""

_CYRILLIC: Final = re.compile(r"[\u0400-\u04ff]")


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model said, without its reasoning, and what it cost; `estimated` where the endpoint didn't count."""

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    estimated: bool
    model: str = ""
    cost: float | None = None
    """In the currency of the price table; None where the model has no price there."""


def spent(stage: str, *completions: Completion) -> StageUsage:
    """What these cost together, booked on a stage."""
    parts = (
        StageUsage(
            stage=stage,
            model=each.model,
            calls=1,
            prompt_tokens=each.prompt_tokens,
            completion_tokens=each.completion_tokens,
            estimated=each.estimated,
            cost=each.cost,
        )
        for each in completions
    )
    return StageUsage.total(stage, parts)


@dataclass(frozen=True, slots=True)
class ReplySchema:
    """The JSON a reply should be: a JSON Schema, strict as OpenAI means it, and its name."""

    name: str
    schema: Mapping[str, Any]

    @property
    def formats(self) -> tuple[dict[str, Any] | None, ...]:
        """Ways to ask for it, the strictest first; the last leaves it to the prompt."""
        strict = {"name": self.name, "strict": True, "schema": dict(self.schema)}
        return ({"type": "json_schema", "json_schema": strict}, {"type": "json_object"}, None)


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
        schema: ReplySchema | None = None,
        timeout_s: float,
        needed: Callable[[], bool] | None = None,
        said: Callable[[str], None] | None = None,
    ) -> Completion:
        """The model's next turn; `timeout_s` covers queueing and retries, `needed` tells if a retry is worth it.

        With `said` the reply is streamed: it hears all of the text so far, without reasoning, again and again.

        Raises ModelUnavailable, Misconfigured, RequestRefused (such a request is not taken) or InvalidModelReply.
        """
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...


async def completion_or_reason(
    chat: ChatModel,
    messages: Sequence[Message],
    *,
    max_tokens: int,
    schema: ReplySchema | None = None,
    timeout_s: float,
    said: Callable[[str], None] | None = None,
) -> Completion | NoCompletion:
    """The completion, or why there is none. For callers that degrade, so that degrading stays their decision."""
    if timeout_s <= 0:
        return NoCompletion("no time left")
    try:
        return await chat.complete(messages, max_tokens=max_tokens, schema=schema, timeout_s=timeout_s, said=said)
    except CairnError as error:
        return NoCompletion(str(error))


def estimated_tokens(text: str) -> int:
    """About how many tokens `text` is: four characters each, in Cyrillic two and a half."""
    cyrillic = len(_CYRILLIC.findall(text))
    return round((len(text) - cyrillic) / 4 + cyrillic / 2.5)
