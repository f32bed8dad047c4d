"""What a handler says of its job while it works on it: provisional tokens, for whoever follows the job's events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

import structlog
from redis.exceptions import RedisError

from shared.runtime.steps import Steps

_EVERY_S: Final = 0.05
"""Between two events of one job: a fast model must not flood the stream."""

_log = structlog.get_logger("cairn")


class Tell(Protocol):
    """Hears the whole text so far, as often as it likes."""

    def __call__(self, text: str) -> None: ...


class Telling:
    """Publishes text that grows as `token` events of a job: each with what is new, or `restart` and all of it."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    @asynccontextmanager
    async def about(self, job_id: str) -> AsyncIterator[Tell]:
        """Takes text while the block runs: the first piece is published at once, later ones by and by.

        A job that has ended meanwhile, cancelled or late, ends the block: nobody is to wait for its model any longer.
        """
        work = asyncio.current_task()
        wanted, told, news = "", "", asyncio.Event()

        def tell(text: str) -> None:
            nonlocal wanted
            wanted = text
            news.set()

        async def publish() -> None:
            nonlocal told
            text = wanted
            data = {"text": text[len(told) :]} if text.startswith(told) else {"text": text, "restart": True}
            told = text
            message = json.dumps({**data, "provisional": True}, ensure_ascii=False)
            try:
                if await self._steps.tell(job_id, "token", message) == "ended" and work is not None:
                    work.cancel()
            except (RedisError, OSError) as away:  # the outcome will say it all
                _log.warning("can't tell of a job", job_id=job_id, error=str(away))

        async def run() -> None:
            while True:
                await news.wait()
                news.clear()
                await publish()
                await asyncio.sleep(_EVERY_S)

        publishing = asyncio.create_task(run())
        try:
            yield tell
        finally:
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
        if wanted != told:
            await publish()
