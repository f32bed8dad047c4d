"""The search both engines share: every query by both arms in one batch, then the cosines that are still missing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from shared.clients.index.lexical import SparseVector
from shared.clients.index.points import DENSE, LEXICAL, Conditions, Rights, narrowing, passage_of
from shared.clients.index.types import QueryVectors
from shared.contracts import Filters, Passage


@dataclass(frozen=True, slots=True)
class Look:
    """One nearest-neighbour question to an engine. `must` holds the asker's rights, always."""

    using: str
    vector: list[float] | SparseVector
    must: Conditions
    limit: int
    among: frozenset[str] | None = None
    """Only these passages, by id; None for all."""
    corpus: Conditions = ()
    """The passages among which the rarity of words is counted."""
    with_payload: bool = True


@dataclass(frozen=True, slots=True)
class Scored:
    """A point an engine found."""

    passage_id: str
    score: float
    payload: dict[str, Any] | None


Run: TypeAlias = Callable[[list[Look]], Awaitable[list[list[Scored]]]]


async def search_by(
    run: Run, queries: Sequence[QueryVectors], rights: Rights, filters: Filters, limit: int, *, has_dense: bool
) -> list[list[Passage]]:
    """`PassageIndex.search` on an engine that `run`s batches. `has_dense`: whether the collection has dense vectors."""
    may_see = (*rights.conditions, *narrowing(filters))
    asked = [(query, look) for query in queries for look in _looks(query, may_see, rights, limit, has_dense=has_dense)]
    if not asked:
        return []
    lists = await run([look for _, look in asked])
    known = {scored.passage_id: scored.payload or {} for found in lists for scored in found}
    similarities = await _similarities(run, asked, lists, may_see)
    passages = {
        passage_id: passage_of(passage_id, payload).model_copy(update={"similarity": similarities.get(passage_id)})
        for passage_id, payload in known.items()
    }
    return [
        [passages[one.passage_id].model_copy(update={"query": query.query, "score": one.score}) for one in found]
        for (query, _), found in zip(asked, lists, strict=True)
    ]


def _looks(query: QueryVectors, may_see: Conditions, rights: Rights, limit: int, *, has_dense: bool) -> list[Look]:
    looks = []
    if query.dense is not None and has_dense:
        looks.append(Look(DENSE, query.dense.tolist(), may_see, limit))
    if query.lexical:
        looks.append(Look(LEXICAL, query.lexical, may_see, limit, corpus=rights.conditions))
    return looks


async def _similarities(
    run: Run, asked: Sequence[tuple[QueryVectors, Look]], lists: list[list[Scored]], may_see: Conditions
) -> dict[str, float]:
    """Greatest cosine by passage id; the engine computes those that the dense arms did not bring."""
    everything = frozenset(scored.passage_id for found in lists for scored in found)
    best: dict[str, float] = {}
    missing: list[Look] = []
    for (query, look), found in zip(asked, lists, strict=True):
        if look.using == LEXICAL or query.hypothetical:
            continue
        _keep_best(best, found)
        if rest := everything - {scored.passage_id for scored in found}:
            missing.append(Look(DENSE, look.vector, may_see, len(rest), among=rest, with_payload=False))
    for found in await run(missing) if missing else []:
        _keep_best(best, found)
    return best


def _keep_best(best: dict[str, float], found: Sequence[Scored]) -> None:
    for scored in found:
        cosine = min(1.0, max(-1.0, scored.score))
        best[scored.passage_id] = max(cosine, best.get(scored.passage_id, -1.0))
