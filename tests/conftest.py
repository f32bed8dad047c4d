"""Fixtures for every tier. Redis is a real server: the embedded one, or the one `CAIRN_TEST_REDIS_URL` names."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest
import structlog
from hypothesis import settings
from redis.asyncio import Redis

from shared.runtime.embedded_redis import start_server, stop_server
from shared.runtime.keys import Keys
from shared.runtime.logs import set_up_logs
from shared.settings import ObserveSettings

# A busy machine says nothing about the speed of an example. CI runs the same examples each time, so that it is red
# for what changed; everybody else's runs look for new ones.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("many", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "default"))


@pytest.fixture(scope="session", autouse=True)
def _quiet_logs() -> None:
    set_up_logs(ObserveSettings(log_level="warning", log_format="json"))
    structlog.configure(cache_logger_on_first_use=False)  # so that tests can capture what is logged


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real server for the whole session; each test has its own key prefix on it."""
    if url := os.environ.get("CAIRN_TEST_REDIS_URL"):
        yield url
        return
    home = tmp_path_factory.mktemp("redis")
    server, _ = start_server(home)
    yield server.url
    stop_server(home)


@pytest.fixture
def keys() -> Keys:
    return Keys(f"test-{secrets.token_hex(4)}:")


@pytest.fixture
async def redis(redis_url: str, keys: Keys) -> AsyncIterator[Redis]:
    """A client; afterwards every key of the test is gone."""
    client = Redis.from_url(redis_url)
    yield client
    async for key in client.scan_iter(f"{keys.prefix}*"):
        await client.delete(key)
    await client.aclose()
