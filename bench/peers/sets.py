"""What every side of the comparison shares: the sets, their vectors, and how a ranking is measured. NumPy is enough."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

CANDIDATES: Final = 40
"""Passages that each arm brings."""
TOP_K: Final = 10

Vectors: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class CorpusPassage:
    """One line of the corpus."""

    id: str
    title: str
    text: str
    language: str

    @property
    def whole(self) -> str:
        """What is embedded and searched by words."""
        return f"{self.title}\n{self.text}"


@dataclass(frozen=True)
class AskedQuestion:
    """A question with the passages that answer it."""

    id: str
    question: str
    gold: frozenset[str]


@dataclass(frozen=True)
class EvaluationSet:
    """Row i of `vectors` belongs to passage i, row j of `question_vectors` to question j."""

    name: str
    passages: Sequence[CorpusPassage]
    questions: Sequence[AskedQuestion]
    vectors: Vectors
    question_vectors: Vectors


Search: TypeAlias = Callable[[AskedQuestion], list[str]]
"""The ids of the best `TOP_K` passages, best first."""


def read_passages(folder: Path) -> list[CorpusPassage]:
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line.replace("\\u0000", "")) for line in lines]
    return [CorpusPassage(row["id"], row["title"], row["text"], row["lang"]) for row in rows]


def read_questions(folder: Path) -> list[AskedQuestion]:
    """The dev questions that have a gold passage."""
    gold: dict[str, set[str]] = {}
    for line in (folder / "dev" / "qrels.tsv").read_text("utf-8").splitlines()[1:]:
        query_id, corpus_id, score = line.split("\t")
        if int(score) > 0:
            gold.setdefault(query_id, set()).add(corpus_id)
    rows = [json.loads(line) for line in (folder / "dev" / "queries.jsonl").read_text("utf-8").splitlines()]
    return [AskedQuestion(row["id"], row["question"], frozenset(gold[row["id"]])) for row in rows if row["id"] in gold]


def load(data: Path, results: Path, name: str) -> EvaluationSet:
    """A set of `data` with its vectors, and those of its questions that `questions` left in `results`."""
    passages, questions = read_passages(data / name), read_questions(data / name)
    stored = np.load(data / "vectors" / f"{name}.npz")
    if [str(each) for each in stored["ids"]] != [passage.id for passage in passages]:
        raise ValueError(f"{name}: the vectors are not those of the corpus")
    asked = np.load(results / f"{name}.questions.npz")
    if [str(each) for each in asked["ids"]] != [question.id for question in questions]:
        raise ValueError(f"{name}: the questions have changed; run `questions` again")
    return EvaluationSet(name, passages, questions, unit(stored["vectors"]), unit(asked["vectors"]))


def unit(vectors: npt.NDArray[Any]) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9), dtype=np.float32)


def ndcg(found: Sequence[str], gold: frozenset[str]) -> float:
    """Of the first ten."""
    gained = sum(1 / math.log2(rank + 2) for rank, each in enumerate(found[:TOP_K]) if each in gold)
    return gained / sum(1 / math.log2(rank + 2) for rank in range(min(len(gold), TOP_K)))


def recall(found: Sequence[str], gold: frozenset[str]) -> float:
    """Of the first ten."""
    return len(gold & set(found[:TOP_K])) / len(gold)
