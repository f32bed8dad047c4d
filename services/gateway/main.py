"""The gateway: admits questions, and ends jobs that are late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.exceptions import RedisError

from services.gateway.allowance import Allowance
from services.gateway.decision import read_ask
from services.gateway.handler import admit
from services.gateway.reaper import reap
from services.gateway.settings import GatewaySettings, JwtSettings
from services.gateway.tokens import TokenVerifier
from shared.runtime.common import Common
from shared.runtime.keys import INBOXES
from shared.runtime.logs import logger
from shared.runtime.stage import Inbox, Stage
from shared.runtime.steps import Steps
from shared.runtime.subscriber import ensure_group
from shared.runtime.worker import run_worker

_log = logger("cairn")


async def create_groups(steps: Steps) -> None:
    """Every stream and group, at id 0, before the first job: no stage can then miss what came before its start."""
    while True:
        try:
            for inbox, group in INBOXES.items():
                await ensure_group(steps.redis, steps.keys.inbox(inbox), group)
        except (RedisError, OSError) as refused:
            _log.warning("can't create the groups yet", error=str(refused))
            await asyncio.sleep(1)
        else:
            return


@asynccontextmanager
async def open_stage(common: Common) -> AsyncIterator[Stage]:
    """The gateway with its settings."""
    settings = GatewaySettings()
    inbox = Inbox.of(
        admit,
        max_workers=32,
        read=read_ask,
        verifier=TokenVerifier(JwtSettings()),
        budget=settings.budget,
        allowance=Allowance(common, settings.limits, max_running=settings.max_running),
    )
    yield Stage("gateway", [inbox], chores=[create_groups, reap])


def main() -> None:
    run_worker(open_stage, "gateway")


if __name__ == "__main__":
    main()
