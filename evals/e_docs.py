"""Recall of the real documents in shared/data/e_docs, asked through the running system.

    cairn up
    cairn ingest E_DOCS/files --collection e_docs
    python -m evals.e_docs E_DOCS

For every question of the FAQs: is a passage of the gold document, and one with the gold anchor, among the first five
retrieved? By pair of languages: the question's, and the documents' that the search is narrowed to.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.cli.console import connected
from shared.client import Client, ask_and_wait
from shared.clients.index import passage_id_of
from shared.contracts import Answered, Ask, Document, Filters
from shared.documents import SplitSettings, UnreadableDocument, find_files, read, split

TOP = 5
AT_ONCE = 8


@dataclass(frozen=True)
class Place:
    """Where a passage stands."""

    path: str
    anchor: str | None


def places_of(folder: Path) -> dict[str, Place]:
    """Every passage's id and place, by reading and splitting the files as `cairn ingest` does."""
    places = {}
    for file in find_files([folder / "files"]):
        try:
            sources = read(file.absolute(), root=folder.absolute())
        except UnreadableDocument:
            continue
        for source in sources:
            document = Document(document_id=source.document_id, title="", uri="", content_hash=source.content_hash)
            for draft in split(source, SplitSettings()):
                places[passage_id_of(document, draft.ordinal)] = Place(source.document_id, draft.anchor)
    return places


@dataclass
class Recall:
    """Hits in the first five passages."""

    asked: int = 0
    document: int = 0
    anchor: int = 0

    def add(self, found: Iterable[Place], gold: list[dict[str, Any]]) -> None:
        places = list(found)
        self.asked += 1
        self.document += any(each.path == wanted["path"] for each in places for wanted in gold)
        self.anchor += any(
            (each.path, each.anchor) == (wanted["path"], wanted["anchor"]) for each in places for wanted in gold
        )

    def line(self, name: str) -> str:
        return f"{name:<22} {self.asked:>4}   {self.document / self.asked:.3f}   {self.anchor / self.asked:.3f}"


async def retrieved(client: Client, question: str, languages: tuple[str, ...], collection: str) -> Answered:
    filters = Filters(languages=languages)
    return await ask_and_wait(
        client,
        Ask(question=question, collection=collection, filters=filters, answer="citations", web="off", top_k=TOP),
    )


async def evaluate(folder: Path, collection: str, limit: int | None) -> None:
    """Ask all dev questions and print the table."""
    places = places_of(folder)
    lines = (folder / "dev" / "queries.jsonl").read_text("utf-8").splitlines()[:limit]
    questions = [json.loads(line) for line in lines]
    table: dict[str, Recall] = defaultdict(Recall)
    slots = asyncio.Semaphore(AT_ONCE)

    async with connected() as client:

        async def ask_one(question: dict[str, Any], languages: tuple[str, ...], name: str) -> None:
            async with slots:
                outcome = await retrieved(client, question["question"], languages, collection)
            if outcome.status in ("failed", "timed_out"):
                raise RuntimeError(f"{question['id']}: {outcome.status} {outcome.error}")
            gold = [each for each in question["gold"] if not languages or each["body_lang"] in languages]
            found = [places[each.passage_id] for step in outcome.trail[:1] for each in step.passages[:TOP]]
            table[name].add(found, gold)

        jobs = []
        for question in questions:
            jobs.append(ask_one(question, (), f"{question['lang']} -> any"))
            for language in sorted({gold["body_lang"] for gold in question["gold"]}):
                jobs.append(ask_one(question, (language,), f"{question['lang']} -> {language}"))
        await asyncio.gather(*jobs)

    print(f"{'question -> documents':<22} asked  doc@{TOP}   anchor@{TOP}")
    for name in sorted(table):
        print(table[name].line(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the e_docs folder, with files/ and dev/queries.jsonl")
    parser.add_argument("--collection", default="e_docs")
    parser.add_argument("--limit", type=int, help="only the first questions")
    arguments = parser.parse_args()
    asyncio.run(evaluate(arguments.folder, arguments.collection, arguments.limit))


if __name__ == "__main__":
    main()
