"""cairn collection: what a name of a collection on a Qdrant server means."""

from __future__ import annotations

from typing import Annotated

import typer

from shared.cli.console import command, fail, out
from shared.clients.index.server import QdrantIndex
from shared.settings import IndexSettings

app = typer.Typer(help="Switch collections on a Qdrant server.", no_args_is_help=True)


@app.callback()
def collections() -> None:
    """Makes typer treat `switch` as a command of its own while it is the only one."""


@app.command()
@command
async def switch(
    name: Annotated[str, typer.Argument(help="the name that questions use")],
    target: Annotated[str, typer.Argument(help="name of the new collection, or of an old one: documents--1")],
) -> None:
    """Let NAME mean what TARGET means, from one moment to the next; the old collection stays, to switch back to."""
    settings = IndexSettings()
    if settings.qdrant_url is None:
        fail("the embedded engine has one directory a collection: set CAIRN_COLLECTION, or rename while it is stopped")
    index = QdrantIndex.at(settings, fingerprint=None)
    try:
        before = await index.switch(name, target)
    finally:
        await index.aclose()
    out.print(f"{name} now means what {target} meant; before: {before or 'nothing'}")
