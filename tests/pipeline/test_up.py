"""`cairn up`: what dies is started again, and nothing outlives the launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.cli.processes import Services, running_services
from shared.runtime.embedded_redis import EmbeddedServer, find_server, stop_server
from shared.runtime.keys import STAGES
from tests.support.wait import wait_until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("CAIRN_DATA_DIR", str(tmp_path))
    before = signal.getsignal(signal.SIGTERM)
    yield tmp_path
    signal.signal(signal.SIGTERM, before)
    stop_server(tmp_path)


async def test_a_dead_redis_comes_back_where_it_was(home: Path) -> None:
    with running_services() as services:
        server = find_server(home)
        assert server is not None
        os.kill(server.pid, signal.SIGKILL)
        await wait_until(lambda: find_server(home) is None)
        again = await wait_until(lambda: _revived(services, home), within_s=20)
    assert again.url == server.url  # its workers find it where they look for it
    assert again.pid != server.pid
    assert find_server(home) is None


def _revived(services: Services, home: Path) -> EmbeddedServer | None:
    services.revive()
    return find_server(home)


async def test_a_dead_service_is_started_again(home: Path) -> None:
    with running_services() as services:
        first = services.services[0].process
        assert first is not None
        first.kill()
        news = await wait_until(services.revive)
        assert "gateway ended with code -9" in news[0]
        await wait_until(lambda: services.revive() or services.services[0].process is not None, within_s=20)
        assert services.services[0].process is not first


async def test_services_stop_when_the_launcher_is_killed(home: Path) -> None:
    launcher = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-m", "shared.cli", "up"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert launcher.stdout is not None
    launcher.stdout.readline()
    children = await wait_until(lambda: _children(launcher.pid), within_s=20)
    launcher.kill()
    launcher.communicate()
    await wait_until(lambda: not any(_is_service(pid) for pid in children), within_s=30)
    assert find_server(home) is not None  # jobs wait in it for the next start


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    if not path.exists():
        pytest.skip("/proc names no children here")
    found = [int(child) for child in path.read_text().split()]
    return found if len(found) >= len(STAGES) and all(map(_is_service, found)) else []


def _is_service(pid: int) -> bool:
    try:
        return b"services." in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
