"""A service as a FastStream application: its subscribers, its chores, metrics and health, and a clean end."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import structlog
import uvloop
from faststream import FastStream
from faststream.__about__ import __version__
from faststream._internal.broker.registrator import Registrator
from faststream.redis import RedisBroker
from faststream.specification import AsyncAPI
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.errors import CairnError
from shared.runtime.common import Common, open_common
from shared.runtime.connection import connect
from shared.runtime.controls import Controls
from shared.runtime.delivery import told
from shared.runtime.embedded_redis import redis_url
from shared.runtime.handling import Handling, HandlingMiddleware, stack
from shared.runtime.health import Pulse, serve_metrics
from shared.runtime.keys import INBOXES, Keys
from shared.runtime.logs import logger, set_up_logs
from shared.runtime.metrics import (
    EVENT_LOOP_LAG_SECONDS,
    JOBS_RUNNING,
    STREAM_OLDEST_SECONDS,
    STREAM_PENDING,
    STREAM_WAITING,
    start_at_zero,
)
from shared.runtime.stage import Inbox, Stage
from shared.runtime.steps import Steps
from shared.runtime.subscriber import StageSubscriber, decode_entry, end_tasks, parse_entry
from shared.settings import HomeSettings, ObserveSettings, RedisSettings, RuntimeSettings

if TYPE_CHECKING:  # an extra
    from shared.runtime.tracing import BeginSpan

_log = logger("cairn")

OpenStage = Callable[[Common], AbstractAsyncContextManager[Stage]]

SUPPORTED_FASTSTREAM = "0.7."
GAUGES_EVERY_S = 2.0
JANITOR_EVERY_S = 30.0


class Worker:
    """One process of one stage."""

    def __init__(
        self,
        stage: Stage,
        url: str,
        keys: Keys,
        settings: RuntimeSettings,
        *,
        consumer: str | None = None,
        controls: Controls | None = None,
        begin_span: BeginSpan | None = None,
    ) -> None:
        if not __version__.startswith(SUPPORTED_FASTSTREAM):
            raise RuntimeError(
                f"shared/runtime/subscriber.py is written against FastStream {SUPPORTED_FASTSTREAM}x, "
                f"found {__version__}"
            )
        self.stage = stage
        self.settings = settings
        self.controls = controls or Controls()
        self.begin_span = begin_span
        self.consumer = consumer or consumer_name(stage.name)
        # No type conversion by FastStream (messages arrive typed) and no access log (one canonical line is ours).
        self.broker = RedisBroker(
            url,
            apply_types=False,
            logger=None,  # type: ignore[arg-type]
            graceful_timeout=None,
            middlewares=(HandlingMiddleware,),  # type: ignore[arg-type]
            socket_keepalive=True,
        )
        self.redis = connect(url)
        self.steps = Steps(self.redis, keys, settings, consumer=self.consumer)
        self.subscribers = [self._subscribe(inbox) for inbox in stage.inboxes]
        self.pulse = Pulse(lambda: max((each.unread_s() for each in self.subscribers), default=0.0))
        self.app = FastStream(
            self.broker,
            logger=None,
            specification=AsyncAPI(title=f"Cairn {stage.name}", version="1", schema_version="3.0.0"),
            lifespan=self._beside,
        )
        self._broken: BaseException | None = None
        start_at_zero(stage.name)

    async def run(self) -> int:
        """Serve until SIGTERM or SIGINT. Answers the exit code: 0 after a clean stop, 1 after a bug."""
        await wait_for_redis(self.redis, self.pulse)
        try:
            await self.app.run()
        finally:
            await self.redis.aclose()
        return 0 if self._broken is None else 1

    def _subscribe(self, inbox: Inbox) -> StageSubscriber:
        handling = Handling(inbox, self.steps, self.settings, self.consumer, self.begin_span)
        subscriber = StageSubscriber(
            self.broker, handling, self.steps, self.settings, paused=lambda: self.controls.paused(self.stage.name)
        )
        Registrator.subscriber(self.broker, subscriber)
        subscriber.add_call(parser_=parse_entry, decoder_=decode_entry, dependencies_=())

        async def call(message: object) -> object:
            return await inbox.handler(message)

        # The name and types of the real handler, for AsyncAPI; the function FastStream calls stays this one.
        call.__name__ = call.__qualname__ = inbox.signature.accepts.__name__
        call.__annotations__ = {"message": inbox.signature.accepts}
        call.__doc__ = inbox.signature.accepts.__doc__
        subscriber(call)
        for emitted in inbox.signature.emits:
            if (target := self.steps.keys.destination(emitted)) is not None:
                # Declared for AsyncAPI: the fenced step publishes.
                self.broker.publisher(stream=target, schema=emitted, title=emitted.__name__)
        return subscriber

    @asynccontextmanager
    async def _beside(self) -> AsyncIterator[None]:
        """Everything that runs beside the subscribers; if any of it breaks, the worker ends with exit code 1."""
        with suppress(RedisError, OSError):  # a stage that is paused takes nothing from its first moment on
            await self.controls.look(self.steps)
        own = [self._watch(), self._gauges(), self._janitor(), self.controls.follow(self.steps)]
        chores = [*own, *(chore(self.steps) for chore in self.stage.chores)]
        tasks = [asyncio.ensure_future(chore) for chore in chores]
        for task in tasks:
            task.add_done_callback(self._chore_ended)
        _log.info("started", consumer=self.consumer, inboxes=[inbox.name for inbox in self.stage.inboxes])
        try:
            yield
        finally:
            await end_tasks(tasks)
            _log.info("stopped", consumer=self.consumer)

    def _chore_ended(self, task: asyncio.Future[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._break(error)

    def _break(self, error: BaseException) -> None:
        _log.error("the worker is broken and ends", error=told(error), stack=stack(error))
        self._broken = error
        self.app.exit()

    async def _watch(self) -> None:
        while True:
            self.pulse.beat()
            if self.settings.parent_pid not in (None, os.getppid()):
                _log.warning("the launcher is gone: stopping")
                self.app.exit()
                return
            for subscriber in self.subscribers:
                if subscriber.failure is not None:
                    self._break(subscriber.failure)
                    return
            slept_at = time.monotonic()
            await asyncio.sleep(0.5)
            EVENT_LOOP_LAG_SECONDS.observe(max(0.0, time.monotonic() - slept_at - 0.5))

    async def _gauges(self) -> None:
        """Each worker tells of its own inboxes. The gateway tells of all: a stage without workers can't."""
        gateway = self.stage.name == "gateway"
        inboxes = list(INBOXES) if gateway else [inbox.name for inbox in self.stage.inboxes]
        while True:
            for name in inboxes:
                with suppress(RedisError, OSError):  # the readers report that Redis is away
                    await self._gauge(name)
            if gateway:
                with suppress(RedisError, OSError):
                    JOBS_RUNNING.set(await self.redis.zcard(self.steps.keys.deadlines))
            await asyncio.sleep(GAUGES_EVERY_S)

    async def _gauge(self, name: str) -> None:
        redis: Any = self.redis
        stream = self.steps.keys.inbox(name)
        length, pending = await redis.xlen(stream), await redis.xpending(stream, INBOXES[name])
        # XINFO's lag turns null when finished entries are deleted; length minus pending is exact.
        waiting = max(0, length - pending["pending"])
        # What was delivered is older than what was not.
        oldest = pending["min"] or (waiting and next((found[0] for found in await redis.xrange(stream, count=1)), None))
        STREAM_WAITING.labels(name).set(waiting)
        STREAM_PENDING.labels(name).set(pending["pending"])
        added_at = int(oldest.partition(b"-")[0]) / 1000 if oldest else time.time()
        STREAM_OLDEST_SECONDS.labels(name).set(max(0.0, time.time() - added_at))

    async def _janitor(self) -> None:
        while True:
            await asyncio.sleep(JANITOR_EVERY_S)
            for subscriber in self.subscribers:
                try:
                    gone = await self.steps.forget(subscriber.handling.inbox.name, subscriber.group)
                    await subscriber.enlist()  # Redis before 7.2 takes an idle consumer for a silent one
                except (RedisError, OSError) as away:
                    _log.warning("can't look for dead consumers", error=str(away))
                    continue
                if gone:
                    _log.info("removed dead consumers", stream=subscriber.stream, consumers=gone)


def consumer_name(stage: str) -> str:
    """Unique for every process, so that replicas and restarts never share a pending list."""
    return f"{stage}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


async def wait_for_redis(redis: Redis, pulse: Pulse) -> None:
    """Until it answers: a worker that starts before Redis waits instead of dying."""
    pause_s = 0.1
    while True:
        pulse.beat()
        try:
            await redis.ping()
        except (RedisError, OSError) as away:
            _log.warning("waiting for Redis", error=str(away))
            await asyncio.sleep(pause_s)
            pause_s = min(2.0, pause_s * 2)
        else:
            return


def run_worker(open_stage: OpenStage, name: str) -> None:
    """The `main` of a service: open its clients, serve, close them, exit with the worker's code."""
    observe = ObserveSettings()
    set_up_logs(observe, stage=name)
    # Until FastStream takes over: a stop while the clients open or Redis is awaited is a clean one, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        code = _run(open_stage, observe)
    except CairnError as error:  # a setting, or a directory that belongs to another process: no traceback helps
        _log.error("can't start", error=str(error))
        code = 1
    sys.exit(code)


def _run(open_stage: OpenStage, observe: ObserveSettings) -> int:
    return uvloop.run(_serve(open_stage, observe))


async def _serve(open_stage: OpenStage, observe: ObserveSettings) -> int:
    async with open_common() as common, open_stage(common) as stage:
        url = redis_url(RedisSettings(), HomeSettings())
        with _tracing(observe, stage.name) as begin_span:
            worker = Worker(stage, url, common.keys, common.settings, controls=common.controls, begin_span=begin_span)
            structlog.contextvars.bind_contextvars(worker=worker.consumer)
            with serve_metrics(observe, worker.pulse):
                return await worker.run()


def _tracing(observe: ObserveSettings, stage: str) -> AbstractContextManager[BeginSpan | None]:
    if observe.traces is None:
        return nullcontext()
    from shared.runtime.tracing import exporting  # noqa: PLC0415  an extra

    return exporting(observe.traces, stage)
