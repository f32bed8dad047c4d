"""Redis over TLS: everything of it is in the URL. The embedded server has no TLS, so this takes one that has."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pytest
import trustme
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from shared.runtime.connection import connect
from shared.runtime.keys import Keys
from tests.support import bus
from tests.support.wait import wait_until

pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server, with TLS, on this PATH")


@dataclass(frozen=True, slots=True)
class Served:
    """A server with a private CA that asks for certificates of its clients, for the name localhost only."""

    port: int
    ca: Path
    certificate: Path
    key: Path

    def url(self, *, host: str = "localhost", trusting: bool = True, known: bool = True) -> str:
        named = {"ssl_ca_certs": str(self.ca)} if trusting else {}
        named |= {"ssl_certfile": str(self.certificate), "ssl_keyfile": str(self.key)} if known else {}
        return f"rediss://:hunter2@{host}:{self.port}/0?{urlencode(named)}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("tls")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(home / "ca.pem")
    for name in ("localhost", "worker"):
        issued = ca.issue_cert(name)
        issued.private_key_pem.write_to_path(home / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(home / f"{name}.pem")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = (
        f'port 0\ntls-port {port}\nbind 127.0.0.1\nrequirepass hunter2\nsave ""\ndir "{home}"\nlogfile "server.log"\n'
        f"tls-cert-file {home}/localhost.pem\ntls-key-file {home}/localhost.key\ntls-ca-cert-file {home}/ca.pem\n"
    )
    with subprocess.Popen(["redis-server", "-"], stdin=subprocess.PIPE) as server:
        assert server.stdin is not None
        server.stdin.write(config.encode())
        server.stdin.close()
        while not listens(port):
            if server.poll() is not None:
                pytest.skip(f"redis-server does not serve TLS here: {(home / 'server.log').read_text('utf-8')[-200:]}")
            time.sleep(0.02)
        yield Served(port, home / "ca.pem", home / "worker.pem", home / "worker.key")
        server.terminate()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def refusal(redis: Redis) -> str:
    with pytest.raises(RedisConnectionError) as refused:
        await redis.ping()
    await redis.aclose()
    return str(refused.value)


async def test_jobs_run_over_tls_with_client_certificates(served: Served, keys: Keys) -> None:
    url = served.url()
    async with bus.running(bus.pipeline(), url, keys), Redis.from_url(url) as redis:
        job_id = await bus.ask(redis, keys, "Why?")
        outcome = await wait_until(lambda: bus.outcome(redis, keys, job_id))
    assert (outcome.status, outcome.answer) == ("answered", "Why?")


async def test_who_is_not_known_is_not_talked_to(served: Served) -> None:
    assert "certificate verify failed" in await refusal(connect(served.url(trusting=False)))
    assert "IP address mismatch" in await refusal(connect(served.url(host="127.0.0.1")))
    assert await refusal(connect(served.url(known=False)))  # the server's refusal


async def test_the_environments_ca_counts_for_redis_too(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(served.ca))
    redis = connect(served.url(trusting=False))
    assert await redis.ping()
    await redis.aclose()
