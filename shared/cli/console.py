"""How the commands speak: rich on a terminal, JSON where a script asks for it, exit codes that mean something."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from enum import IntEnum
from functools import wraps
from typing import Any, NoReturn, TypeVar

import typer
from pydantic import ValidationError
from redis.asyncio import Redis
from redis.exceptions import RedisError
from rich.console import Console

from shared.client import Client
from shared.contracts import Answered, Contract, Status
from shared.errors import CairnError
from shared.runtime.delivery import explain
from shared.runtime.embedded_redis import redis_url
from shared.runtime.keys import Keys
from shared.settings import HomeSettings, RedisSettings

# No emoji: ids and answers may hold :codes: that are meant as they stand.
out = Console(highlight=False, soft_wrap=True, emoji=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

T = TypeVar("T")


class Exit(IntEnum):
    """Exit codes of every command; 2 is typer's for wrong usage."""

    OK = 0
    ERROR = 1
    ABSTAINED = 3
    FAILED = 4
    ENDED = 5
    """Timed out or cancelled."""
    NOT_FOUND = 6
    """No such job, or no outcome yet."""
    INCOMPLETE = 7
    """Some of the documents could not be ingested."""


STATUS_CODES: dict[Status, Exit] = {
    "answered": Exit.OK,
    "citations": Exit.OK,
    "abstained": Exit.ABSTAINED,
    "failed": Exit.FAILED,
    "cancelled": Exit.ENDED,
    "timed_out": Exit.ENDED,
}


def exit_code(outcome: Answered) -> Exit:
    return STATUS_CODES[outcome.status]


def print_json(value: Contract | dict[str, Any] | list[Any]) -> None:
    """One line of JSON on standard output."""
    text = value.model_dump_json() if isinstance(value, Contract) else json.dumps(value, ensure_ascii=False)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def fail(message: str, code: Exit = Exit.ERROR) -> NoReturn:
    """End the command with a message on standard error."""
    err.print(message, style="red", markup=False)
    raise typer.Exit(code)


@asynccontextmanager
async def connected() -> AsyncIterator[Client]:
    """A client on the configured or embedded Redis."""
    settings = RedisSettings()
    redis = Redis.from_url(redis_url(settings, HomeSettings()))
    try:
        yield Client(redis, Keys(settings.topic_prefix))
    finally:
        await redis.aclose()


def command(function: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    """An async function as a typer command; errors that we know become one line and an exit code."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> T:
        try:
            return asyncio.run(function(*args, **kwargs))
        except ValidationError as error:
            fail(explain(error))
        except (CairnError, TimeoutError) as error:
            fail(str(error))
        except (RedisError, OSError) as error:
            fail(f"Redis: {error}; see `cairn doctor`")
        except KeyboardInterrupt:
            raise typer.Exit(130) from None

    return run
