"""Every service as a process of its own on this machine, restarted when it dies; what compose does in production."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from shared.runtime.embedded_redis import start_server, stop_server
from shared.runtime.keys import STAGES
from shared.settings import HomeSettings, ObserveSettings, RedisSettings

RESTART_AFTER_S = 1.0
STOP_TIMEOUT_S = 30.0
LOOK_AT_REDIS_S = 2.0


@dataclass
class Service:
    """One service's process, its log file and how often it died."""

    name: str
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    died: int = 0
    start_at: float = field(default=0.0)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", f"services.{self.name}.main"],
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we stop the services one by one
            )

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


@dataclass
class Services:
    """All six; `revive` is to be called now and then."""

    services: list[Service]
    redis_home: Path | None = None
    """Data directory of the embedded Redis, where that is ours to keep up."""
    _redis_due: float = 0.0

    def revive(self) -> list[str]:
        """Start again what has died; answers the names, each with where to look."""
        news = []
        if self.redis_home is not None and time.monotonic() >= self._redis_due:
            _, started = start_server(self.redis_home)
            self._redis_due = time.monotonic() + LOOK_AT_REDIS_S
            news += [f"the embedded Redis had ended; it runs again, see {self.redis_home / 'redis'}"] if started else []
        for service in self.services:
            if service.process is not None and service.process.poll() is not None:
                code, service.process = service.process.returncode, None
                service.died += 1
                service.start_at = time.monotonic() + min(10.0, RESTART_AFTER_S * service.died)
                news.append(f"{service.name} ended with code {code}, starting it again; see {service.log}")
            if service.process is None and time.monotonic() >= service.start_at:
                service.start()
        return news

    def stop(self) -> None:
        """SIGTERM to all at once; each finishes what it has in hand."""
        for service in self.services:
            service.signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for service in self.services:
            if service.process is None:
                continue
            try:
                service.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                service.process.kill()
                service.process.wait()


@contextmanager
def running_services(environment: Mapping[str, str] | None = None) -> Iterator[Services]:
    """Redis (the embedded one, unless CAIRN_REDIS_URL is set) and every service, until the body ends."""
    home, observe = HomeSettings(), ObserveSettings()
    logs = home.data_dir / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    # A SIGTERM unwinds like Ctrl-C, so that the services are stopped.
    signal.signal(signal.SIGTERM, _interrupt)
    embedded = RedisSettings().redis_url is None
    ours = start_server(home.data_dir)[1] if embedded else False
    services = Services(
        redis_home=home.data_dir if embedded else None,
        services=[
            Service(
                name,
                {
                    "CAIRN_LOG_FORMAT": "json",
                    "CAIRN_PARENT_PID": str(os.getpid()),
                    # One port a process: the setting is the first of them.
                    "CAIRN_METRICS_PORT": str(observe.metrics_port + number if observe.metrics_port else 0),
                    **(environment or {}),
                },
                logs / f"{name}.log",
            )
            for number, name in enumerate(STAGES)
        ],
    )
    try:
        services.revive()
        yield services
    finally:
        services.stop()
        if ours:
            stop_server(home.data_dir)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
