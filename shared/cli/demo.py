"""cairn demo: the whole system on this machine, real documents in, cited answers out, and all of it gone again."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import typer
from rich.markup import escape
from rich.table import Table

from shared.cli.console import Exit, connected, err, fail, out
from shared.cli.ingest import ingest
from shared.cli.jobs import follow, show
from shared.cli.processes import Services, running_services
from shared.contracts import Answered, Ask
from shared.errors import CairnError
from shared.settings import HomeSettings

HANDBOOK = Path(__file__).parents[2] / "samples" / "handbook"

QUESTIONS = (
    ("French", "Combien coûte la livraison en point relais ?", "answered"),
    ("Russian", "Сколько стоит доставка посылки до 5 кг в Казахстан?", "answered"),
    (
        "two parts",
        "What does it cost to rent the tent NK-T2-310 for 7 days, and what does the same tent cost new?",
        "answered",
    ),
    ("staff only", "What is the target purchase margin on boots?", "abstained"),
    ("answered nowhere", "How much does it cost to rent a kayak for a weekend?", "abstained"),
)


def demo(
    keep: bool = typer.Option(False, "--keep", help="leave it running until Ctrl-C, to ask more"),
) -> None:
    """Start everything, ingest the sample handbook, ask five questions, show answers and times, stop."""
    if not HANDBOOK.is_dir():
        fail(f"the sample documents are not where they should be: {HANDBOOK}")
    # A place of its own: the demo must not meet the user's documents or jobs.
    os.environ["CAIRN_DATA_DIR"] = str(HomeSettings().data_dir / "demo")
    try:
        with running_services() as services:
            out.rule("documents in")
            try:
                ingest([HANDBOOK], root=HANDBOOK)
            except typer.Exit as ended:
                if ended.exit_code != Exit.OK:
                    raise
            outcomes = asyncio.run(_ask_all(services))
            out.rule("what took how long")
            out.print(_times(outcomes))
            if keep:
                out.print(f"running; in another terminal: CAIRN_DATA_DIR={HomeSettings().data_dir} cairn ask …")
                while True:
                    services.revive()
                    time.sleep(0.5)
    except CairnError as error:
        fail(str(error))
    except KeyboardInterrupt:
        out.print("stopping")
    else:
        wrong = [
            question
            for (_, question, expected), outcome in zip(QUESTIONS, outcomes, strict=True)
            if outcome.status != expected
        ]
        if wrong:
            fail(f"not as expected: {'; '.join(wrong)}")


async def _ask_all(services: Services) -> list[Answered]:
    outcomes = []
    async with connected() as client, _revived(services):
        for kind, question, _ in QUESTIONS:
            out.rule(kind)
            out.print(f"[bold]{escape(question)}[/bold]")
            job_id = await client.submit(Ask(question=question))
            outcome = await follow(client, job_id, within_s=70, quiet=False)
            show(outcome)
            outcomes.append(outcome)
    return outcomes


@asynccontextmanager
async def _revived(services: Services) -> AsyncIterator[None]:
    """Start again what dies meanwhile, and say so."""

    async def watch() -> None:
        while True:
            for news in services.revive():
                err.print(news)
            await asyncio.sleep(0.2)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


def _times(outcomes: list[Answered]) -> Table:
    """Milliseconds of work by question and stage; the rest of each total is waiting in streams."""
    stages = list(dict.fromkeys(timing.stage for outcome in outcomes for timing in outcome.timings))
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("ms", *stages, "total"):
        table.add_column(name, justify="left" if name == "ms" else "right", no_wrap=True)
    for (kind, _, _), outcome in zip(QUESTIONS, outcomes, strict=True):
        spent = [sum(each.work_s for each in outcome.timings if each.stage == stage) for stage in stages]
        table.add_row(kind, *(f"{seconds * 1000:.0f}" for seconds in (*spent, outcome.seconds)))
    return table
