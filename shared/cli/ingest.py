"""cairn ingest: reads and splits here; the retriever embeds and writes the index.

Messages of bounded size go to `cairn:ingest`, never more than a few ahead of the retriever, and its events come back
as progress.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from shared.cli.console import Exit, command, connected, err, fail
from shared.cli.ingest_run import IngestRun
from shared.client import Client
from shared.contracts import Ingest
from shared.ingestion import LISTED_AT_ONCE

MESSAGES_AHEAD = 32
SILENCE_S = 300.0
"""Without an event for this long something is wrong: no retriever, most likely."""


@command
async def ingest(
    paths: Annotated[
        list[Path], typer.Argument(help="files and directories (.md .html .pdf .docx .txt .csv .tsv .jsonl)")
    ],
    *,
    collection: Annotated[str | None, typer.Option(help="collection; default CAIRN_COLLECTION")] = None,
    tenant: Annotated[str | None, typer.Option(help="tenant that may read them")] = None,
    acl: Annotated[list[str] | None, typer.Option(help="role that may read them; repeat for more")] = None,
    region: Annotated[str | None, typer.Option(help="region that may read them")] = None,
    root: Annotated[
        Path | None, typer.Option(help="document ids are paths below this; default: beside each PATH")
    ] = None,
    sync: Annotated[bool, typer.Option("--sync", help="also remove what has vanished from these directories")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="remove these documents instead")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the summary as JSON")] = False,
) -> None:
    """Bring documents into the index. Unchanged ones cost nothing; changed ones replace their passages.

    Options win over a document's own front matter (acl, tenant, region, collection).
    """
    missing = [path for path in paths if not path.exists() and not delete]
    if missing:
        fail(f"no such file or directory: {', '.join(map(str, missing))}")
    if sync and (delete or not all(path.is_dir() for path in paths)):
        fail("--sync takes directories, and no --delete: what is in them goes in, what has vanished goes out")
    run = IngestRun({"collection": collection, "tenant": tenant, "acl": acl, "region": region})
    async with connected() as client:
        line = _Line(client, run, quiet=as_json)
        try:
            await line.send(run.removals(paths, root) if delete else run.messages(paths, root))
            for directory in paths if sync else ():
                await line.send(await _vanished(line, run, directory, root))
        finally:
            await asyncio.to_thread(run.close)
    run.report(as_json=as_json)
    raise typer.Exit(Exit.INCOMPLETE if run.errors else Exit.OK)


async def _vanished(line: _Line, run: IngestRun, directory: Path, root: Path | None) -> list[Ingest]:
    """The removal of what the index has of this directory and the directory has not."""
    try:
        questions = run.listings(directory, root)
    except ValueError as error:
        fail(f"nothing removed: {error}")
    removals: list[Ingest] = []
    for question in questions:
        shelf = (question.document.collection, question.document.tenant)
        removals += run.vanished(shelf, await line.listed(question))
    return removals


class _Line:
    """Messages to the retriever, and its events back."""

    def __init__(self, client: Client, run: IngestRun, *, quiet: bool) -> None:
        self._client = client
        self._run = run
        self._events = _events(client, run.run_id)
        self._quiet = quiet or not err.is_terminal

    async def send(self, messages: Iterable[Ingest]) -> None:
        """Publish them, never more than a few ahead of the retriever, and hear what became of each."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=err, disable=self._quiet, transient=True) as progress:
            bar = progress.add_task("ingesting", total=None)
            ahead = sent = heard = 0
            source = iter(messages)
            while True:
                message = await asyncio.to_thread(next, source, None) if ahead < MESSAGES_AHEAD else None
                if message is not None:
                    await self._client.publish("ingest", message)
                    ahead, sent = ahead + 1, sent + 1
                    progress.update(bar, total=sent, description=escape(message.document.title[:40]))
                    continue
                if ahead == 0:
                    return
                self._run.heard(await anext(self._events))
                ahead, heard = ahead - 1, heard + 1
                progress.update(bar, completed=heard)

    async def listed(self, question: Ingest) -> list[str]:
        """Ids of the documents asked for, page by page."""
        found: list[str] = []
        while True:
            await self._client.publish("ingest", question)
            event = await anext(self._events)
            if event["status"] != "listed":
                fail(f"the retriever can't list its documents: {event.get('error')}")
            found += event["documents"]
            if len(event["documents"]) < LISTED_AT_ONCE:
                return found
            question = question.model_copy(update={"after": found[-1]})


async def _events(client: Client, run_id: str) -> AsyncIterator[dict[str, Any]]:
    last: Any = b"0-0"
    heard_at = time.monotonic()
    while True:
        reply: Any = await client.redis.xread({client.keys.events(run_id): last}, block=1000, count=50)
        for _, entries in reply:
            for entry_id, fields in entries:
                last, heard_at = entry_id, time.monotonic()
                yield json.loads(fields[b"data"])
        if time.monotonic() - heard_at > SILENCE_S:
            raise TimeoutError(f"nothing heard for {SILENCE_S:.0f} s: is a retriever running? See `cairn doctor`")
