"""Several endpoints for one model: the next is asked where one fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from prometheus_client import Counter

from shared.clients.chat.protocol import ChatModel, Completion, Message, ReplySchema
from shared.errors import CairnError

FAILOVERS = Counter("cairn_failovers", "Completions asked of another endpoint because one failed.", ("model",))

_TIME_SHARE: Final = 0.5
"""Of the time left, for each endpoint but the last."""

_log = structlog.get_logger("cairn")


class FailoverChat:
    """Asks each in turn. What fails here may work there: a dead server, a spent quota, a prompt that is too long."""

    def __init__(self, chats: Sequence[ChatModel]) -> None:
        self._chats = chats

    @property
    def name(self) -> str:
        return " or ".join(dict.fromkeys(chat.name for chat in self._chats))

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
        """The first completion to be had. Raises what the first endpoint raised: it is the one to mend."""
        end = time.monotonic() + timeout_s
        failures: list[CairnError] = []
        for chat in self._chats:
            left_s = max(0.0, end - time.monotonic())
            try:
                return await chat.complete(
                    messages,
                    max_tokens=max_tokens,
                    temperature=temperature,
                    schema=schema,
                    timeout_s=left_s if chat is self._chats[-1] else left_s * _TIME_SHARE,
                    needed=needed,
                    said=said,
                )
            except CairnError as error:
                failures.append(error)
            if chat is not self._chats[-1]:
                FAILOVERS.labels(chat.name).inc()
                _log.warning("model failed, asking the next", model=chat.name, error=str(failures[-1]))
        raise failures[0]

    async def aclose(self) -> None:
        for chat in self._chats:
            await chat.aclose()
