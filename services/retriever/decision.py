"""What the retriever decides: how ranked lists become one, and which passages say the same. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shared.contracts import Header, Passage, Retrieve, TrailPassage, TrailStep
from shared.language import terms

RRF_K = 60
"""Cormack, Clarke and Büttcher 2009; damps how much the very first ranks count."""


@dataclass(frozen=True, slots=True)
class RankedList:
    """What one arm brought for one query, best first."""

    query: int
    passages: Sequence[Passage]


def fuse(lists: Sequence[RankedList], method: str) -> list[Passage]:
    """One list, best first, each passage once, with its fused `score` and the `query` that ranked it best.

    Ties are broken by passage id, so that the same search gives the same answer everywhere.
    """
    scores: dict[str, float] = {}
    best: dict[str, tuple[float, Passage]] = {}
    for ranked in lists:
        points = _by_rank(ranked.passages) if method == "rrf" else _by_score(ranked.passages)
        for passage, gained in zip(ranked.passages, points, strict=True):
            scores[passage.passage_id] = scores.get(passage.passage_id, 0.0) + gained
            known = best.get(passage.passage_id)
            if known is None or gained > known[0]:
                similarity = _greatest(passage.similarity, known[1].similarity if known else None)
                changed = {"query": ranked.query, "similarity": similarity}
                best[passage.passage_id] = (gained, passage.model_copy(update=changed))
            elif passage.similarity is not None:
                similarity = _greatest(passage.similarity, known[1].similarity)
                best[passage.passage_id] = (known[0], known[1].model_copy(update={"similarity": similarity}))
    order = sorted(scores, key=lambda passage_id: (-scores[passage_id], passage_id))
    return [best[passage_id][1].model_copy(update={"score": scores[passage_id]}) for passage_id in order]


def fold_duplicates(passages: Iterable[Passage], overlap: float) -> list[Passage]:
    """The passages without those that repeat a better one, nearly word for word, for the same readers."""
    kept: list[Passage] = []
    vocabularies: list[set[str]] = []
    for passage in passages:
        words = set(terms(passage.text, passage.language))
        if not any(_jaccard(words, known) >= overlap for known in vocabularies):
            kept.append(passage)
            vocabularies.append(words)
    return kept


def found(msg: Retrieve, passages: Sequence[Passage], *, index_version: str, degraded: tuple[str, ...]) -> Header:
    """The job's header with this search on its trail."""
    step = TrailStep(
        hop=msg.header.hop,
        route=msg.route,
        queries=msg.queries,
        passages=tuple(
            TrailPassage(passage_id=each.passage_id, origin=each.origin, score=round(each.score, 6), query=each.query)
            for each in passages
        ),
    )
    return msg.header.updated(step=step, degraded=degraded, versions={"index": index_version})


def _by_rank(passages: Sequence[Passage]) -> list[float]:
    return [1.0 / (RRF_K + rank) for rank in range(1, len(passages) + 1)]


def _by_score(passages: Sequence[Passage]) -> list[float]:
    raw = [passage.score for passage in passages]
    spread = statistics.pstdev(raw) if raw else 0.0
    # A list of equals says nothing about their order, but being in it says something: all get the same.
    return [(score - min(raw)) / spread if spread else 1.0 for score in raw]


def _greatest(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return max(known) if known else None


def _jaccard(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0
