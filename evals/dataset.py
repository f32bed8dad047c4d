"""What an evaluation set is: a corpus, questions with what is relevant to them, and judged pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from evals.corpus import Corpus
from shared.contracts import Passage, Principal

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Gold:
    """Where something relevant stands: a whole document, or one section of it."""

    document_id: str
    """Of a corpus.jsonl: the passage's id. Of files: the path below the set's folder."""
    anchor: str | None = None
    language: str | None = None
    """Of the text that stands there."""
    score: int = 1
    """Graded relevance, > 0."""

    def holds(self, passage: Passage) -> bool:
        """Whether the passage is of this document, and of this section if one is named."""
        return self.in_document(passage) and self.anchor in (None, passage.anchor)

    def in_document(self, passage: Passage) -> bool:
        """Whether the passage is of this document; records of a JSONL file belong to the file, too."""
        return self.document_id in (passage.document_id, passage.document_id.partition("#")[0])


@dataclass(frozen=True, slots=True)
class EvalQuestion:
    """A question and what is known about it."""

    id: str
    question: str
    language: str
    kind: str | None
    answerable: bool
    answers: tuple[str, ...]
    """Any of them is right."""
    gold: tuple[Gold, ...]
    principal: Principal
    """Who asks; the public unless the set says otherwise."""

    def is_gold(self, passage: Passage) -> bool:
        return any(gold.holds(passage) for gold in self.gold)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups whose figures this question counts for: `all`, `lang.ru`, `kind.faq`, `pair.ru-en`.

        A pair is the question's language and that of everything relevant to it, where that is one language.
        """
        languages = {gold.language for gold in self.gold if gold.language}
        kind = [f"kind.{self.kind}"] if self.kind else []
        pair = [f"pair.{self.language}-{next(iter(languages))}"] if len(languages) == 1 else []
        return ("all", f"lang.{self.language}", *kind, *pair)


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """A question, a passage and whether it helps to answer: what a judge is measured against."""

    query_id: str
    corpus_id: str
    relevant: bool
    origin: str
    """Where the pair comes from: `gold`, `bm25`, `random` …"""


@dataclass(frozen=True, slots=True)
class Dataset:
    """An evaluation set as read."""

    name: str
    folder: Path
    split: str
    corpus: Corpus
    questions: tuple[EvalQuestion, ...]
    pairs: tuple[JudgedPair, ...]
    fingerprint: str
    """Of the files: corpus, questions, relevance and pairs together; however they are split. 16 hexadecimal digits."""

    def limited(self, limit: int | None) -> Dataset:
        """The same set with at most `limit` questions, spread evenly over the file, and their pairs."""
        if limit is None or limit >= len(self.questions):
            return self
        kept = tuple(spread(self.questions, limit))
        ids = {question.id for question in kept}
        return replace(self, questions=kept, pairs=tuple(pair for pair in self.pairs if pair.query_id in ids))


def spread(things: Sequence[T], count: int) -> list[T]:
    """`count` of them at even distances: files are often sorted by kind, and the first ones are then all alike."""
    return [things[place * len(things) // count] for place in range(count)]
