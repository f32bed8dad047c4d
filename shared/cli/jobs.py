"""cairn ask, submit, result, cancel, trail"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from shared.cli.console import Exit, command, connected, err, exit_code, fail, out, print_json
from shared.client import Client, Event
from shared.contracts import Answered, Ask
from shared.runtime.ending import end_job
from shared.runtime.steps import Steps
from shared.settings import RuntimeSettings

Question = Annotated[str, typer.Argument(help="the question; - reads it from standard input")]
JobId = Annotated[str, typer.Argument(help="the job's id")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
Collection = Annotated[str | None, typer.Option(help="search this collection")]
TopK = Annotated[int | None, typer.Option(help="passages to grade; default: what the kind of question wants")]
Web = Annotated[str, typer.Option(help="auto, off or only")]
AnswerForm = Annotated[str, typer.Option("--answer", help="full, or citations only")]
DeadlineS = Annotated[float, typer.Option("--deadline", help="seconds until the job is ended")]
MaxHops = Annotated[int, typer.Option("--max-hops", help="searches at most, each for what is still missing")]
Language = Annotated[str | None, typer.Option(help="answer in this language (en, fr, ru, …)")]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help="file with the asker's JWT; or set CAIRN_TOKEN", exists=True, dir_okay=False),
]
WantedId = Annotated[str | None, typer.Option("--job-id", help="idempotency key")]


def _ask(question: str, token_file: Path | None, **fields: Any) -> Ask:
    token = token_file.read_text("utf-8").strip() if token_file else os.environ.get("CAIRN_TOKEN")
    text = sys.stdin.read() if question == "-" else question
    return Ask.model_validate({"question": text, "token": token, **fields})


@command
async def ask(
    question: Question,
    *,
    collection: Collection = None,
    top_k: TopK = None,
    web: Web = "auto",
    answer: AnswerForm = "full",
    max_hops: MaxHops = 1,
    deadline: DeadlineS = 60.0,
    language: Language = None,
    token_file: TokenFile = None,
    job_id: WantedId = None,
    as_json: AsJson = False,
) -> None:
    """Ask a question and wait: stages as they happen, then the answer with its citations."""
    fields = {
        "collection": collection,
        "top_k": top_k,
        "web": web,
        "answer": answer,
        "job_id": job_id,
        "max_hops": max_hops,
    }
    asked = _ask(question, token_file, deadline_s=deadline, language=language, **fields)
    async with connected() as client:
        outcome = await follow(client, await client.submit(asked), within_s=deadline + 10, quiet=as_json)
    if as_json:
        print_json(outcome)
    else:
        show(outcome)
    raise typer.Exit(exit_code(outcome))


@command
async def submit(
    question: Question,
    *,
    collection: Collection = None,
    top_k: TopK = None,
    web: Web = "auto",
    answer: AnswerForm = "full",
    max_hops: MaxHops = 1,
    deadline: DeadlineS = 60.0,
    language: Language = None,
    token_file: TokenFile = None,
    job_id: WantedId = None,
) -> None:
    """Submit a question and print its job id, without waiting."""
    fields = {
        "collection": collection,
        "top_k": top_k,
        "web": web,
        "answer": answer,
        "job_id": job_id,
        "max_hops": max_hops,
    }
    asked = _ask(question, token_file, deadline_s=deadline, language=language, **fields)
    async with connected() as client:
        out.print(await client.submit(asked))


@command
async def result(
    job_id: JobId,
    wait: Annotated[float, typer.Option(help="seconds to wait for it")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Show a job's outcome."""
    async with connected() as client:
        outcome = await (client.wait(job_id, within_s=wait) if wait else client.outcome(job_id))
        if outcome is None:
            found = await client.status(job_id)
            where = f"is in the {found['stage']}" if found else "is unknown, or not admitted yet"
            fail(f"job {job_id} {where}", Exit.NOT_FOUND)
    if as_json:
        print_json(outcome)
    else:
        show(outcome)
    raise typer.Exit(exit_code(outcome))


@command
async def cancel(job_id: JobId) -> None:
    """Cancel a running job; whoever works on it stops within about a second."""
    async with connected() as client:
        cancelled = await end_job(Steps(client.redis, client.keys, RuntimeSettings()), job_id, "cancelled")
        if not cancelled and not await client.status(job_id):
            fail(f"job {job_id} is unknown, or not admitted yet", Exit.NOT_FOUND)
    out.print("cancelled" if cancelled else "had ended already")


@command
async def trail(job_id: JobId, as_json: AsJson = False) -> None:
    """Show a job's path: stages with their times, searches, grades and decisions."""
    async with connected() as client:
        events = await client.events(job_id)
        outcome = await client.outcome(job_id)
    if not events:
        fail(f"job {job_id} is unknown, or not admitted yet", Exit.NOT_FOUND)
    if as_json:
        print_json([{"type": event.type, "data": event.data} for event in events])
        return
    for event in events:
        if event.type != "token":
            out.print(line_of(event))
    if outcome is not None:
        _show_trail(outcome)


async def follow(client: Client, job_id: str, *, within_s: float, quiet: bool) -> Answered:
    """Show the job's stages while it runs; answers its outcome."""
    waiting = nullcontext() if quiet or not err.is_terminal else err.status(f"job {job_id}")
    said = ""
    with waiting as status:
        async for event in client.follow(job_id, within_s=within_s):
            if event.type == "terminal":
                return Answered.model_validate(event.data)
            if event.type == "token":
                said = (said if not event.data.get("restart") else "") + event.data["text"]
                if status is not None:
                    status.update(f"[dim]{escape(said[-SAID_CHARS:])}[/dim]")
            elif not quiet:
                err.print(line_of(event))
    raise AssertionError("follow ends with a terminal event or raises")


SAID_CHARS = 400
"""Of a provisional answer, what is shown while it is written."""
_PLUMBING = ("stage", "hop", "next", "wait_s", "work_s", "worker")


def line_of(event: Event) -> str:
    """One event as one line."""
    data = event.data
    if event.type == "terminal":
        return f"[bold]{data['status']}[/bold] after {data['seconds']:.2f} s"
    if "document_id" in data:
        return f"{data['status']:<10} {escape(data['document_id'])}"
    facts = ", ".join(f"{name} {_short(value)}" for name, value in data.items() if name not in _PLUMBING)
    return (
        f"[dim]{data['stage']:>9} {data['work_s'] * 1000:6.0f} ms[/dim]  → {data['next']:<9} [dim]{escape(facts)}[/dim]"
    )


def _short(value: Any) -> str:
    return " | ".join(map(str, value)) if isinstance(value, list) else str(value)


def show(outcome: Answered) -> None:
    """The answer, its citations and what should be known about them."""
    title: dict[str, str] = {"answered": "green", "citations": "green", "abstained": "yellow"}
    colour = title.get(outcome.status, "red")
    label = f"{outcome.status}, confidence {outcome.confidence:.2f}" + (
        f", {escape(outcome.writer)}" if outcome.writer else ""
    )
    out.print(f"[{colour}]{label}[/{colour}]")
    if outcome.answer:
        out.print(escape(outcome.answer))
    if outcome.error:
        out.print(f"[red]{escape(outcome.error)}[/red]")
    for cited in outcome.citations:
        where = " › ".join(part for part in (cited.title, cited.section) if part)
        out.print(f"  [cyan]\\[{cited.n}][/cyan] {escape(where)} [dim]{escape(cited.uri)}[/dim]")
        out.print(f"      [italic]{escape(' '.join(cited.quote.split()))}[/italic]")
    for reason in outcome.degraded:
        out.print(f"  [yellow]degraded: {escape(reason)}[/yellow]")
    stages = ", ".join(f"{each.stage} {each.work_s:.2f}" for each in outcome.timings)
    out.print(f"  [dim]job {escape(outcome.job_id)}: {outcome.seconds:.2f} s ({stages})[/dim]")


def _show_trail(outcome: Answered) -> None:
    for step in outcome.trail:
        heading = f"hop {step.hop + 1}: {' | '.join(step.queries) or step.reason}"
        table = Table(title=escape(heading), title_justify="left", box=None)
        for name in ("passage", "from", "query", "score", "grade", "why"):
            table.add_column(name)
        for each in step.passages:
            grade = "-" if each.grade is None else f"{each.grade:.2f} {each.relevance or ''}"
            table.add_row(
                each.passage_id, each.origin, str(each.query), f"{each.score:.3f}", grade, escape(each.reason)
            )
        out.print(table)
        if step.verdict:
            out.print(f"  decision: [bold]{step.verdict}[/bold] {escape(step.reason)}")
