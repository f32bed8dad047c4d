"""The command line: `cairn`."""

from __future__ import annotations

import typer

from shared.cli import collection, dead
from shared.cli.control import control
from shared.cli.demo import demo
from shared.cli.doctor import doctor
from shared.cli.evaluate import evaluate
from shared.cli.ingest import ingest
from shared.cli.jobs import ask, cancel, result, submit, trail
from shared.cli.run import up, worker
from shared.cli.scale import scale

app = typer.Typer(
    help="Corrective RAG over Redis Streams: questions in, cited answers out.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # they hold questions and tokens
)
for each in (demo, up, worker, ingest, ask, submit, result, cancel, trail, control, scale, doctor):
    app.command()(each)
app.command("eval")(evaluate)
app.add_typer(dead.app, name="dead")
app.add_typer(collection.app, name="collection")


def main() -> None:
    """Entry point of the console script."""
    app()
