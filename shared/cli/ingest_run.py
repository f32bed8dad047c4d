"""What one run of `cairn ingest` sends and hears: files as messages, events as a report."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from rich.markup import escape

from shared.cli.console import err, out, print_json
from shared.contracts import ANY_REGION, PUBLIC_ROLE, PUBLIC_TENANT, Document, Ingest, PassageDraft
from shared.documents import (
    GuardedReader,
    ReadSettings,
    SourceDocument,
    SplitSettings,
    UnreadableDocument,
    find_files,
    split_hash,
)

PASSAGES_PER_MESSAGE = 32
CHARS_PER_MESSAGE = 120_000

Shelf: TypeAlias = tuple[str | None, str]
"""Collection (None: the default one) and tenant."""


class IngestRun:
    """One run: its id, what it publishes and what it has heard back."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.run_id = f"ingest-{uuid.uuid4().hex[:12]}"
        self.options = {name: value for name, value in options.items() if value}
        self.errors: dict[str, str] = {}
        self.outcomes: dict[str, str] = {}
        self.passages: dict[str, int] = {}
        self.started = time.monotonic()
        self._settings = SplitSettings()
        self._reader = GuardedReader(ReadSettings(), self._settings)
        self._present: set[tuple[Shelf, str]] = set()
        self._unread: set[str] = set()

    def close(self) -> None:
        """Stop reading, also a file that another thread is waiting for."""
        self._reader.close()

    def messages(self, paths: list[Path], root: Path | None) -> Iterator[Ingest]:
        """Every document of these paths, part by part; what can't be read is noted and left out."""
        for path, base in self._files(paths, root):
            try:
                for source, drafts in self._reader.read(path, root=base):
                    yield from self._parts(source, drafts)
            except (UnreadableDocument, OSError) as error:
                self.errors[str(path)] = str(error)
                self._unread.add(path.relative_to(base).as_posix())

    def removals(self, paths: list[Path], root: Path | None) -> Iterator[Ingest]:
        """The removal of every document of these paths; a file that is gone is named by its path."""
        for path, base in self._files(paths, root):
            try:
                names = [source.document_id for source, _ in self._reader.read(path, root=base)]
            except (UnreadableDocument, OSError):
                names = []
            for name in names or [path.relative_to(base).as_posix()]:
                yield self._about("delete", name, self._shelf({}))

    def listings(self, directory: Path, root: Path | None) -> list[Ingest]:
        """Questions which documents of this directory the index has, one for each shelf that the run has met.

        Raises ValueError where its documents can't be told from others, or it is empty, as an unmounted one would be.
        """
        prefix = f"{directory.absolute().relative_to(_base_of(directory, root)).as_posix()}/"
        if prefix == "./":
            raise ValueError("--root must lie above the directory, or its documents can't be told from others")
        if not any(name.startswith(prefix) for name in (*self._unread, *(name for _, name in self._present))):
            raise ValueError(f"{directory} holds no documents; to remove all of them, say --delete")
        shelves = {self._shelf({}), *(shelf for shelf, _ in self._present)}
        return [self._about("list", prefix, shelf) for shelf in sorted(shelves, key=str)]

    def vanished(self, shelf: Shelf, listed: Iterable[str]) -> Iterator[Ingest]:
        """The removal of those listed documents that the run has not met; of a file it could not read nothing goes."""
        for name in listed:
            if (shelf, name) not in self._present and name.partition("#")[0] not in self._unread:
                yield self._about("delete", name, shelf)

    def _about(self, action: Literal["delete", "list"], name: str, shelf: Shelf) -> Ingest:
        collection, tenant = shelf
        document = Document(
            document_id=name, title=name, uri=name, content_hash="", collection=collection, tenant=tenant
        )
        return Ingest(run_id=self.run_id, action=action, document=document)

    def _files(self, paths: list[Path], root: Path | None) -> Iterator[tuple[Path, Path]]:
        for path in paths:
            for file in find_files([path]) if path.exists() else [path]:
                yield file.absolute(), _base_of(path, root)

    def _shelf(self, metadata: Mapping[str, Any]) -> Shelf:
        known = {**metadata, **self.options}
        return known.get("collection"), known.get("tenant", PUBLIC_TENANT)

    def _parts(self, source: SourceDocument, drafts: list[PassageDraft]) -> Iterator[Ingest]:
        if not drafts:
            self.errors[source.document_id] = f"{source.uri}: there is no text in it"
            self._unread.add(source.document_id.partition("#")[0])
            return
        # The options, else the document's own metadata, else everybody.
        known: dict[str, Any] = {**source.metadata, **self.options}
        collection, tenant = self._shelf(source.metadata)
        self._present.add(((collection, tenant), source.document_id))
        document = Document(
            document_id=source.document_id,
            title=source.title,
            uri=source.uri,
            content_hash=split_hash(source, self._settings),
            language=source.language,
            collection=collection,
            tenant=tenant,
            acl=tuple(known.get("acl") or (PUBLIC_ROLE,)),
            region=known.get("region", ANY_REGION),
            owner=known.get("owner"),
            valid_from=known.get("valid_from"),
            valid_to=known.get("valid_to"),
        )
        submitted_at = time.time()
        chunks = list(_bounded(drafts))
        for number, chunk in enumerate(chunks):
            yield Ingest(
                run_id=self.run_id,
                document=document,
                part=number,
                parts=len(chunks),
                passage_total=len(drafts),
                passages=tuple(chunk),
                submitted_at=submitted_at,
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


def _base_of(path: Path, root: Path | None) -> Path:
    """What document ids are relative to: the root, else the directory that holds PATH, a file's directory being one."""
    if root is not None:
        return root.absolute()
    parent = path.absolute().parent
    return parent if path.is_dir() else parent.parent


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
