"""cairn up, worker"""

from __future__ import annotations

import importlib
import time
from typing import Annotated

import typer

from shared.cli.console import Exit, err, fail, out
from shared.cli.processes import running_services
from shared.errors import CairnError
from shared.runtime.keys import STAGES
from shared.settings import HomeSettings, ObserveSettings


def up() -> None:
    """Start Redis (embedded, unless CAIRN_REDIS_URL is set) and all six services; Ctrl-C stops them."""
    try:
        with running_services() as services:
            out.print(f"running: {', '.join(STAGES)}; logs in {HomeSettings().data_dir / 'logs'}")
            if port := ObserveSettings().metrics_port:
                out.print(f"metrics on ports {port} to {port + len(STAGES) - 1}")
            out.print('ingest: cairn ingest PATH…   ask: cairn ask "…"   stop: Ctrl-C')
            try:
                while True:
                    for news in services.revive():
                        err.print(news)
                    time.sleep(0.2)
            except KeyboardInterrupt:
                out.print("stopping: what is in hand is finished first")
    except CairnError as error:
        fail(str(error))


def worker(service: Annotated[str, typer.Argument(help=", ".join(STAGES))]) -> None:
    """Run one worker of a service in the foreground, as containers do."""
    if service not in STAGES:
        fail(f"no service {service}; there are {', '.join(STAGES)}", Exit.ERROR)
    try:
        importlib.import_module(f"services.{service}.main").main()
    except CairnError as error:
        fail(str(error))
