"""FastStream's stream subscriber with another way to fetch.

FastStream 0.7 reads ahead (one message more than its workers), never reads what a dead worker left, stops for good when
a group vanishes and reads its options through deep copies. This subclass keeps everything else of it (parsing,
middlewares, lifecycle, AsyncAPI) and fetches itself:

- it asks for as many messages as it has free slots, so whatever it can't start stays in the stream for other workers;
- the same slots take over deliveries of silent workers (XAUTOCLAIM from a cursor);
- a heartbeat renews what is in hand; a delivery that was cancelled, reaped or claimed by another is stopped here;
- Redis away, restarted or flushed: back off, create the group again, go on;
- a stop finishes what is in hand within the grace time, and hands the rest back.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from faststream import AckPolicy
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.redis import RedisBroker, StreamSub
from faststream.redis.message import FAKE_CONSUMER, RedisStreamMessage
from faststream.redis.subscriber.config import RedisSubscriberConfig, RedisSubscriberSpecificationConfig
from faststream.redis.subscriber.specification import StreamSubscriberSpecification
from faststream.redis.subscriber.usecases import StreamSubscriber
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from shared.runtime.delivery import Delivery, told
from shared.runtime.handling import Handling
from shared.runtime.logs import logger
from shared.runtime.metrics import CAPACITY, CLAIMED, IN_HAND
from shared.runtime.steps import Steps
from shared.settings import RuntimeSettings

_log = logger("cairn")

PAUSE_LOOK_S = 0.1
"""How often a paused subscriber looks whether it still is."""
CLAIMS_PER_CLAIM_TIME = 4
"""How often the backlog of silent workers is looked through within one claim time."""


class StageSubscriber(StreamSubscriber):
    """Fetches for one inbox with `max_workers` slots."""

    def __init__(
        self,
        broker: RedisBroker,
        handling: Handling,
        steps: Steps,
        settings: RuntimeSettings,
        *,
        paused: Callable[[], bool] = lambda: False,
    ) -> None:
        inbox = handling.inbox
        self.handling = handling
        self.steps = steps
        self.settings = settings
        self.paused = paused
        self.stream = steps.keys.inbox(inbox.name)
        self.group = inbox.group
        self.consumer = handling.consumer
        self.max_workers = settings.max_workers or inbox.max_workers
        self.in_hand: dict[str, asyncio.Task[None]] = {}
        self._looked_at = time.monotonic()
        self._slot_freed = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._claim_cursor = "0-0"
        self._claim_due = 0.0
        declared = StreamSub(self.stream, group=self.group, consumer=self.consumer, max_records=self.max_workers)
        outer = broker.config
        calls = CallsCollection[Any]()
        super().__init__(
            RedisSubscriberConfig(stream_sub=declared, _outer_config=outer, _ack_policy=AckPolicy.MANUAL),  # type: ignore[arg-type]
            StreamSubscriberSpecification(
                outer,  # type: ignore[arg-type]
                RedisSubscriberSpecificationConfig(title_=None, description_=None, include_in_schema=True),
                calls,
                stream_sub=declared,
            ),
            calls,
        )

    # --- lifecycle, called by the broker ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Create the group and begin to fetch. The base class's start would begin its own reading."""
        self._build_fastdepends_model()
        try:
            await self._ensure_group()
            await self.enlist()
        except (RedisError, OSError) as refused:  # full, or away again: the fetching loop tries on
            _log.warning("can't create the group yet", stream=self.stream, error=str(refused))
        self._post_start()
        CAPACITY.labels(self.group).inc(self.max_workers)
        self._loops = [asyncio.create_task(self._fetch()), asyncio.create_task(self._beat())]

    async def stop(self) -> None:
        """Take nothing new, finish what is in hand within `grace_s`, hand back the rest, leave the group."""
        self.running = False
        self._slot_freed.set()
        CAPACITY.labels(self.group).dec(self.max_workers)
        fetch, beat = self._loops or (None, None)
        if fetch is not None:
            # Not cancelled at once: a reply on its way would be lost, and its messages with it until they are claimed.
            await asyncio.wait([fetch], timeout=self.settings.block_s + 5)
            await end_tasks([fetch])
        if self.in_hand:
            await asyncio.wait(self.in_hand.values(), timeout=self.settings.grace_s)
        await end_tasks(list(self.in_hand.values()))
        if beat is not None:
            await end_tasks([beat])
        try:
            await self.steps.leave(self.handling.inbox.name, self.group)
        except (RedisError, OSError) as away:  # nothing is lost: silent deliveries are claimed
            _log.warning("could not hand back at stop", stream=self.stream, error=str(away))

    async def enlist(self) -> None:
        """Be listed among the group's consumers: Redis before 7.2 lists one only after its first message."""
        redis: Any = self.steps.redis
        await redis.xgroup_createconsumer(self.stream, self.group, self.consumer)

    def unread_s(self) -> float:
        """Seconds since this subscriber last looked at its inbox; 0 while it has no free slot to look for."""
        return 0.0 if len(self.in_hand) >= self.max_workers else time.monotonic() - self._looked_at

    @property
    def failure(self) -> BaseException | None:
        """What ended a loop of this subscriber that should still run: a bug, for which the worker exits."""
        for task in self._loops:
            if task.done() and not task.cancelled() and task.exception() is not None:
                return task.exception()
        return None

    def get_log_context(self, message: Any) -> dict[str, str]:
        # The base class's reads the stream's name through a deep copy, once a message.
        return {"channel": self.stream, "message_id": getattr(message, "message_id", "")}

    # --- fetching --------------------------------------------------------------------------------------------------

    async def _fetch(self) -> None:
        failures = 0
        while self.running:
            free = self.max_workers - len(self.in_hand)
            if free <= 0:
                self._slot_freed.clear()
                await self._slot_freed.wait()
                continue
            self._looked_at = time.monotonic()
            if self.paused():
                await asyncio.sleep(PAUSE_LOOK_S)
                continue
            try:
                deliveries = await self._claim(free) if time.monotonic() >= self._claim_due else []
                if not deliveries:
                    deliveries = await self._read(free)
            except (RedisError, OSError) as error:
                failures += 1
                await self._recover(error, failures)
                continue
            failures = 0
            if self.running:  # else it came too late: the stop hands it back
                for delivery in deliveries:
                    self._begin(delivery)

    async def _read(self, count: int) -> list[Delivery]:
        redis: Any = self.steps.redis
        reply = await redis.xreadgroup(
            self.group, self.consumer, {self.stream: ">"}, count=count, block=int(self.settings.block_s * 1000)
        )
        return [
            Delivery(self.handling.inbox.name, entry_id.decode(), fields)
            for _, entries in reply
            for entry_id, fields in entries
        ]

    async def _claim(self, count: int) -> list[Delivery]:
        self._claim_cursor, claimed = await self.steps.claim(
            self.handling.inbox.name, self.group, cursor=self._claim_cursor, count=count
        )
        CLAIMED.labels(self.group).inc(len(claimed))
        if self._claim_cursor == "0-0":  # looked through: look again after a part of the claim time, not all at once
            pause_s = self.settings.claim_after_s / CLAIMS_PER_CLAIM_TIME
            self._claim_due = time.monotonic() + pause_s * (0.5 + random.random() / 2)
        return [Delivery(self.handling.inbox.name, each.entry_id, each.fields, each.deliveries) for each in claimed]

    async def _recover(self, error: Exception, failures: int) -> None:
        if isinstance(error, ResponseError) and "NOGROUP" in str(error):
            _log.warning("the stream or its group is gone; creating it again", stream=self.stream)
            try:
                await self._ensure_group()
            except (RedisError, OSError) as still_away:
                error = still_away
            else:
                return
        _log.warning("can't read", stream=self.stream, error=str(error), failures=failures)
        await asyncio.sleep(min(2.0, 0.1 * 2.0 ** min(failures, 10)) * (0.5 + random.random() / 2))

    async def _ensure_group(self) -> None:
        # At id 0: what was published before the first worker started is work, too.
        await ensure_group(self.steps.redis, self.stream, self.group)

    # --- working ---------------------------------------------------------------------------------------------------

    def _begin(self, delivery: Delivery) -> None:
        if delivery.entry_id in self.in_hand:
            return  # our own, claimed late; or read again, after a restart that forgot the last second
        raw = {
            "type": "stream",
            "channel": self.stream,
            "message_ids": [delivery.entry_id.encode()],
            "data": delivery.fields,
            "delivery": delivery,
            "handling": self.handling,
        }
        task = asyncio.create_task(self._work(raw))
        self.in_hand[delivery.entry_id] = task
        IN_HAND.labels(self.group).inc()
        task.add_done_callback(partial(self._free, delivery.entry_id))

    async def _work(self, raw: Any) -> None:
        await self.process_message(raw)

    def _free(self, entry_id: str, task: asyncio.Task[None]) -> None:
        del self.in_hand[entry_id]
        IN_HAND.labels(self.group).dec()
        self._slot_freed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("delivery escaped its handling", entry_id=entry_id, error=told(error))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.settings.heartbeat_s)
            held = list(self.in_hand)
            if not held:
                continue
            try:
                lost = await self.steps.renew(self.handling.inbox.name, self.group, held)
            except (RedisError, OSError) as away:
                _log.warning("can't renew claims", stream=self.stream, error=str(away))
                continue
            for entry_id in lost:
                # Finished between the look and now, or cancelled, reaped, claimed by another: stop working on it.
                if entry_id in self.in_hand:
                    self.in_hand[entry_id].cancel()


async def ensure_group(redis: Redis, stream: str, group: str) -> None:
    """Create the stream and its consumer group, from the first entry on, unless it is there."""
    try:
        await redis.xgroup_create(stream, group, id="0", mkstream=True)
    except ResponseError as error:
        if "BUSYGROUP" not in str(error) and not await _exists(redis, stream, group):  # a full server refuses even that
            raise


async def _exists(redis: Any, stream: str, group: str) -> bool:
    try:
        return any(found["name"] == group.encode() for found in await redis.xinfo_groups(stream))
    except ResponseError:
        return False


async def end_tasks(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel until they have ended: on Python 3.11 `asyncio.wait_for`, which redis-py uses, may swallow a cancel."""
    while left := [task for task in tasks if not task.done()]:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=1)


async def parse_entry(raw: Any) -> RedisStreamMessage:
    """FastStream's envelope around an entry; the runtime reads the fields itself, so nothing is decoded here."""
    entry_id = raw["delivery"].entry_id
    return RedisStreamMessage(
        raw_message=raw,
        body=raw["data"],
        message_id=entry_id,
        correlation_id=entry_id,
        consumer=FAKE_CONSUMER,  # it acknowledges nothing: the handling's step does
        group=None,
    )


async def decode_entry(message: RedisStreamMessage) -> Any:
    """The typed message, or the InvalidJob that says why there is none; sorting is the handling's business."""
    raw: Any = message.raw_message
    return raw["handling"].read(raw["delivery"])
