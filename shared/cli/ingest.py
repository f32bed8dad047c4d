"""cairn ingest: reads and splits here; the retriever embeds and writes the index.

Messages of bounded size go to `cairn:ingest`, never more than a few ahead of the retriever, and its events come back
as progress.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from shared.cli.console import Exit, command, connected, err, fail, out, print_json
from shared.client import Client
from shared.contracts import ANY_REGION, PUBLIC_ROLE, PUBLIC_TENANT, Document, Ingest, PassageDraft
from shared.documents import SourceDocument, SplitSettings, UnreadableDocument, find_files, read, split

PASSAGES_PER_MESSAGE = 32
CHARS_PER_MESSAGE = 120_000
MESSAGES_AHEAD = 32
SILENCE_S = 300.0
"""Without an event for this long something is wrong: no retriever, most likely."""


@command
async def ingest(
    paths: Annotated[list[Path], typer.Argument(help="files and directories (.md .html .pdf .txt .jsonl)")],
    *,
    collection: Annotated[str | None, typer.Option(help="collection; default CAIRN_COLLECTION")] = None,
    tenant: Annotated[str | None, typer.Option(help="tenant that may read them")] = None,
    acl: Annotated[list[str] | None, typer.Option(help="role that may read them; repeat for more")] = None,
    region: Annotated[str | None, typer.Option(help="region that may read them")] = None,
    root: Annotated[
        Path | None, typer.Option(help="document ids are paths below this; default: beside each PATH")
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="remove these documents instead")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the summary as JSON")] = False,
) -> None:
    """Bring documents into the index. Unchanged ones cost nothing; changed ones replace their passages.

    Options win over a document's own front matter (acl, tenant, region, collection).
    """
    missing = [path for path in paths if not path.exists() and not delete]
    if missing:
        fail(f"no such file or directory: {', '.join(map(str, missing))}")
    run = _Run({"collection": collection, "tenant": tenant, "acl": acl, "region": region})
    messages = run.removals(paths, root) if delete else run.messages(paths, root)
    async with connected() as client:
        await _send(client, run, messages, quiet=as_json)
    run.report(as_json=as_json)
    raise typer.Exit(Exit.INCOMPLETE if run.errors else Exit.OK)


class _Run:
    """One run: its id, what it publishes and what it has heard back."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.run_id = f"ingest-{uuid.uuid4().hex[:12]}"
        self.options = {name: value for name, value in options.items() if value}
        self.errors: dict[str, str] = {}
        self.outcomes: dict[str, str] = {}
        self.passages: dict[str, int] = {}
        self.started = time.monotonic()

    def messages(self, paths: list[Path], root: Path | None) -> Iterator[Ingest]:
        """Every document of these paths, part by part; what can't be read is noted and left out."""
        settings = SplitSettings()
        for path, base in self._files(paths, root):
            try:
                for source in read(path, root=base):
                    yield from self._parts(source, split(source, settings))
            except (UnreadableDocument, OSError) as error:
                self.errors[str(path)] = str(error)

    def removals(self, paths: list[Path], root: Path | None) -> Iterator[Ingest]:
        """The removal of every document of these paths; a file that is gone is named by its path."""
        for path, base in self._files(paths, root):
            try:
                sources = read(path, root=base)
            except (UnreadableDocument, OSError):
                sources = []
            names = [source.document_id for source in sources] or [path.absolute().relative_to(base).as_posix()]
            for name in names:
                document = Document(document_id=name, title=name, uri=name, content_hash="", **self._placed({}))
                yield Ingest(run_id=self.run_id, action="delete", document=document)

    def _files(self, paths: list[Path], root: Path | None) -> Iterator[tuple[Path, Path]]:
        for path in paths:
            base = root.absolute() if root is not None else path.absolute().parent
            if root is None and not path.is_dir():
                base = base.parent
            for file in find_files([path]) if path.exists() else [path]:
                yield file.absolute(), base

    def _placed(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Where the document goes and who may read it: the options, else its own metadata, else everybody."""
        known = {**metadata, **self.options}
        return {
            "collection": known.get("collection"),
            "tenant": known.get("tenant", PUBLIC_TENANT),
            "acl": tuple(known.get("acl") or (PUBLIC_ROLE,)),
            "region": known.get("region", ANY_REGION),
        }

    def _parts(self, source: SourceDocument, drafts: list[PassageDraft]) -> Iterator[Ingest]:
        if not drafts:
            self.errors[source.document_id] = f"{source.uri}: there is no text in it"
            return
        metadata: dict[str, Any] = dict(source.metadata)
        placed = self._placed(metadata)
        document = Document(
            document_id=source.document_id,
            title=source.title,
            uri=source.uri,
            content_hash=source.content_hash,
            language=source.language,
            owner=metadata.get("owner"),
            valid_from=metadata.get("valid_from"),
            valid_to=metadata.get("valid_to"),
            **placed,
        )
        chunks = list(_bounded(drafts))
        for number, chunk in enumerate(chunks):
            yield Ingest(
                run_id=self.run_id,
                document=document,
                part=number,
                parts=len(chunks),
                passage_total=len(drafts),
                passages=tuple(chunk),
            )

    def heard(self, data: dict[str, Any]) -> None:
        """One event of the retriever's."""
        name = data["document_id"]
        if data["status"] == "failed":
            self.errors[name] = data["error"]
        elif data["status"] != "part" and self.outcomes.get(name) in (None, "unchanged"):
            # A document of several parts is heard of several times; that it changed is the news.
            self.outcomes[name] = data["status"]
            self.passages[name] = data["passages"]

    def report(self, *, as_json: bool) -> None:
        """What became of it all."""
        counts = dict(sorted(Counter(self.outcomes.values()).items()))
        seconds = round(time.monotonic() - self.started, 1)
        if as_json:
            print_json(
                {
                    "run_id": self.run_id,
                    "documents": counts,
                    "passages": sum(self.passages.values()),
                    "seconds": seconds,
                    "errors": self.errors,
                }
            )
            return
        for problem in self.errors.values():
            err.print(f"[yellow]{escape(problem)}[/yellow]")
        said = ", ".join(f"{count} {status}" for status, count in counts.items()) or "nothing"
        out.print(f"documents: {said}; {sum(self.passages.values())} passages, {len(self.errors)} errors, {seconds} s")


def _bounded(drafts: list[PassageDraft]) -> Iterator[list[PassageDraft]]:
    chunk: list[PassageDraft] = []
    chars = 0
    for draft in drafts:
        if chunk and (len(chunk) == PASSAGES_PER_MESSAGE or chars + len(draft.text) > CHARS_PER_MESSAGE):
            yield chunk
            chunk, chars = [], 0
        chunk.append(draft)
        chars += len(draft.text)
    if chunk:
        yield chunk


async def _send(client: Client, run: _Run, messages: Iterator[Ingest], *, quiet: bool) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, disable=quiet or not err.is_terminal, transient=True) as progress:
        bar = progress.add_task("ingesting", total=None)
        ahead = sent = heard = 0
        events = _events(client, run.run_id)
        source = iter(messages)
        while True:
            message = await asyncio.to_thread(next, source, None) if ahead < MESSAGES_AHEAD else None
            if message is not None:
                await client.publish("ingest", message)
                ahead, sent = ahead + 1, sent + 1
                progress.update(bar, total=sent, description=escape(message.document.title[:40]))
                continue
            if ahead == 0:
                return
            run.heard(await anext(events))
            ahead, heard = ahead - 1, heard + 1
            progress.update(bar, completed=heard)


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
