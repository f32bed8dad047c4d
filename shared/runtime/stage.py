"""What a service hands to the runtime: its inboxes, each a handler with its dependencies already in place.

The handler's signature is the topology: `async def grade(msg: Grade, *, judge: Judge) -> Generate | SearchWeb` reads
the grader's inbox and may publish to the generator's and the web search's.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import UnionType
from typing import Any

from shared.contracts import Answered, Command, Contract, Ingested
from shared.runtime.delivery import Delivery, read_command
from shared.runtime.keys import INBOXES

Handler = Callable[..., Awaitable[Contract]]
Reader = Callable[[Delivery, int], Contract]
"""Entry and size limit in, command out; raises InvalidJob."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a handler takes and what it may return."""

    accepts: type[Contract]
    emits: tuple[type[Contract], ...]


def signature_of(handler: Handler) -> Signature:
    """Read the topology off a handler. Raises TypeError for one that isn't `async def f(msg: Command, …) -> …`."""
    function = handler.func if isinstance(handler, partial) else handler
    hints = typing.get_type_hints(function)
    first = next(iter(inspect.signature(function).parameters))
    accepts, returned = hints[first], hints["return"]
    emits = typing.get_args(returned) if isinstance(returned, UnionType) else (returned,)
    if not (isinstance(accepts, type) and issubclass(accepts, Contract)):
        raise TypeError(f"{function.__name__}: its first parameter must be one message type, not {accepts}")
    for emitted in emits:
        if not (isinstance(emitted, type) and issubclass(emitted, (Command, Answered, Ingested))):
            raise TypeError(f"{function.__name__}: may return commands, Answered or Ingested, not {emitted}")
    return Signature(accepts, emits)


@dataclass(frozen=True, slots=True)
class Inbox:
    """One stream, the handler of its messages and how many of them it works on at once."""

    name: str
    handler: Handler
    signature: Signature
    max_workers: int
    read: Reader

    @classmethod
    def of(cls, handler: Handler, *, max_workers: int, read: Reader | None = None, **dependencies: Any) -> Inbox:
        """The inbox that `handler`'s message type names, with `dependencies` bound."""
        signature = signature_of(handler)
        accepts = signature.accepts
        return cls(
            name=accepts.inbox,  # type: ignore[attr-defined]
            handler=partial(handler, **dependencies),
            signature=signature,
            max_workers=max_workers,
            read=read or partial(read_command, accepts),
        )

    @property
    def group(self) -> str:
        return INBOXES[self.name]


@dataclass(frozen=True, slots=True)
class Stage:
    """A service: its inboxes, and loops that run beside them (the gateway's reaper)."""

    name: str
    inboxes: Sequence[Inbox]
    chores: Sequence[Callable[[Any], Awaitable[None]]] = ()
    """Each is called with the worker's `Steps` and runs until cancelled."""
