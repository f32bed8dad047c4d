"""cairn scale: so many workers of a service, by hand."""

from __future__ import annotations

import asyncio
import importlib
from contextlib import closing
from typing import Annotated

import typer

from shared.cli.console import command, fail, out
from shared.runtime.keys import STAGES
from shared.scaler.settings import ScalerSettings


@command
async def scale(
    service: Annotated[str, typer.Argument(help=", ".join(STAGES))],
    replicas: Annotated[int, typer.Argument(min=1, max=1000, help="how many there should be")],
    project: Annotated[str | None, typer.Option(help="compose project; default: CAIRN_SCALER_PROJECT")] = None,
) -> None:
    """Start or stop containers of a compose service until so many run; those that go finish what they have first."""
    if service not in STAGES:
        fail(f"no service {service}; there are {', '.join(STAGES)}")
    # Only now: the Docker SDK takes most of a second to import.
    docker_engine = importlib.import_module("shared.scaler.docker_engine")
    with closing(docker_engine.Engine(project or ScalerSettings().project)) as engine:
        found = await asyncio.to_thread(engine.scale, service, replicas)
    out.print(f"{service}: {found} -> {replicas}" if found != replicas else f"{service}: {replicas}, as before")
