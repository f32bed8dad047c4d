"""The loop: look at what waits, decide, scale, tell."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextlib import closing, suppress

from prometheus_client import Counter, Gauge
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.errors import CairnError
from shared.runtime.common import open_common
from shared.runtime.health import Pulse, serve_metrics
from shared.runtime.keys import Keys
from shared.runtime.logs import logger, set_up_logs
from shared.scaler.decision import Pace
from shared.scaler.docker_engine import Engine
from shared.scaler.settings import ScalerSettings
from shared.scaler.signals import read_signals
from shared.settings import ObserveSettings

REPLICAS = Gauge("cairn_scaler_replicas", "Replicas that run.", ("service",))
WANTED = Gauge("cairn_scaler_wanted", "Replicas that the load needs, within the bounds.", ("service",))
DECISIONS = Counter("cairn_scaler_decisions", "Looks, by what followed from them.", ("service", "reason"))

BEAT_EVERY_S = 1.0

_log = logger("cairn")


class Scaler:
    """Scales each service by itself: while one drains, the others go on."""

    def __init__(self, settings: ScalerSettings, redis: Redis, keys: Keys, engine: Engine) -> None:
        self.settings = settings
        self.redis = redis
        self.keys = keys
        self.engine = engine
        up_after_s, down_after_s = settings.up_after_s, settings.down_after_s
        self._paces = {
            service: Pace(bounds, up_after_s=up_after_s, down_after_s=down_after_s)
            for service, bounds in settings.services.items()
        }

    async def run(self) -> None:
        """Until it is cancelled. Without Redis or the engine everything stays as it is."""
        await asyncio.gather(*(self._follow(service) for service in self._paces))

    async def look(self, service: str) -> None:
        """One look at one service, and what follows from it."""
        replicas = await asyncio.to_thread(self.engine.count, service)
        seen = await read_signals(self.redis, self.keys, service)
        decision = self._paces[service].next(seen, replicas, time.monotonic())
        REPLICAS.labels(service).set(replicas)
        WANTED.labels(service).set(decision.needed)
        DECISIONS.labels(service, decision.reason).inc()
        changes = decision.replicas != replicas
        (_log.info if changes else _log.debug)(
            "scaling",
            service=service,
            replicas=replicas,
            wanted=decision.replicas,
            needed=decision.needed,
            reason=decision.reason,
            waiting=seen.waiting,
            oldest_s=round(seen.oldest_s, 1),
            in_hand=seen.in_hand,
            dry_run=self.settings.dry_run,
        )
        if changes and not self.settings.dry_run:
            await asyncio.to_thread(self.engine.scale, service, decision.replicas)
            REPLICAS.labels(service).set(decision.replicas)

    async def _follow(self, service: str) -> None:
        while True:
            try:
                await self.look(service)
            except (CairnError, RedisError, OSError) as error:
                _log.warning("can't scale", service=service, error=str(error))
            await asyncio.sleep(self.settings.every_s)


async def _serve() -> None:
    settings, pulse = ScalerSettings(), Pulse(lambda: 0.0)
    async with open_common() as common:
        with closing(Engine(settings.project)) as engine, serve_metrics(ObserveSettings(), pulse):
            running = asyncio.create_task(Scaler(settings, common.redis, common.keys, engine).run())
            for stop in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(stop, running.cancel)
            while not running.done():
                pulse.beat()
                await asyncio.wait([running], timeout=BEAT_EVERY_S)
            with suppress(asyncio.CancelledError):
                await running


def main() -> None:
    """Scale until SIGTERM; what drains then is waited for."""
    set_up_logs(ObserveSettings(), stage="scaler")
    try:
        asyncio.run(_serve())
    except CairnError as error:
        _log.error("can't start", error=str(error))
        sys.exit(1)
