"""What waits, read from Redis. XINFO's lag is of no use: it turns null when finished entries are deleted."""

from __future__ import annotations

import time
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from shared.runtime.keys import INBOXES, Keys
from shared.scaler.decision import Signals


async def read_signals(redis: Redis, keys: Keys, service: str) -> Signals:
    """Of all inboxes of one service. Raises redis-py's errors; an inbox that is not there yet is empty."""
    client: Any = redis
    waiting, in_hand, oldest_s = 0, 0, 0.0
    for stream in (keys.inbox(name) for name, group in INBOXES.items() if group == service):
        try:
            found = {each["name"].decode(): each for each in await client.xinfo_groups(stream)}
        except ResponseError as error:
            if "no such key" not in str(error):
                raise
            continue
        group = found.get(service)
        if group is None:
            continue
        in_hand += group["pending"]
        stream_waiting = max(0, await client.xlen(stream) - group["pending"])
        waiting += stream_waiting
        if stream_waiting:
            # Exclusive: what was delivered last may still be in hand, and there.
            start = f"({group['last-delivered-id'].decode()}"
            for entry_id, _ in await client.xrange(stream, min=start, count=1):
                oldest_s = max(oldest_s, time.time() - int(entry_id.partition(b"-")[0]) / 1000)
    return Signals(waiting, oldest_s, in_hand)
