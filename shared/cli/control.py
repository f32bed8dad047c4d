"""cairn control: switches for the running system, seen by every worker within about a second."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from shared.cli.console import command, connected, out, print_json
from shared.runtime.controls import SWITCHES, Controls, switch
from shared.runtime.steps import Steps
from shared.settings import RuntimeSettings


@command
async def control(
    name: Annotated[str | None, typer.Argument(help="the switch; without one, all are shown")] = None,
    value: Annotated[str | None, typer.Argument(help="what to set it to; default takes it back")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show the switches, or set one: generation off, web off, pause:STAGE on, model:llm NAME, model:judge NAME."""
    controls = Controls()
    async with connected() as client:
        steps = Steps(client.redis, client.keys, RuntimeSettings())
        if name is not None:
            if value is None:
                raise typer.BadParameter(f"say what to set {name} to: {_choices(name)}")
            await switch(steps, name, value)
        await controls.look(steps)
    if as_json:
        print_json(controls.all)
        return
    for each in SWITCHES:
        out.print(f"{each:16} {escape(controls.all.get(each, 'default'))}")


def _choices(name: str) -> str:
    return " or ".join([*(SWITCHES.get(name) or ("a model's name",)), "default"])
