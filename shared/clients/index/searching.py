"""The search both engines share: every query by both arms in one batch, then the cosines that are still missing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from shared.clients.index.conditions import AnyOf, Conditions, NoneOf, Rights, narrowing
from shared.clients.index.lexical import SparseVector
from shared.clients.index.points import DENSE, LEXICAL, passage_of
from shared.clients.index.types import QueryVectors
from shared.contracts import Filters
from shared.passages import Ranking


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
    baseline: float = 0.0
    """What to take off each score."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A point an engine found."""

    passage_id: str
    score: float
    payload: dict[str, Any] | None


Run: TypeAlias = Callable[[list[Look]], Awaitable[list[list[Scored]]]]


async def search_by(
    run: Run, queries: Sequence[QueryVectors], rights: Rights, filters: Filters, limit: int, *, has_dense: bool
) -> list[Ranking]:
    """`PassageIndex.search` on an engine that `run`s batches. `has_dense`: whether the collection has dense vectors."""
    may_see = (*rights.conditions, *narrowing(filters, now=time.time()))
    arms = [
        (query, looks)
        for query in queries
        for looks in (
            _dense_looks(query, may_see, filters.languages, limit) if has_dense else [],
            [Look(LEXICAL, query.lexical, may_see, limit, corpus=rights.conditions)] if query.lexical else [],
        )
        if looks
    ]
    if not arms:
        return []
    replies = iter(await run([look for _, looks in arms for look in looks]))
    lists = [[(look, next(replies)) for look in looks] for _, looks in arms]
    payloads = {one.passage_id: one.payload or {} for arm in lists for _, found in arm for one in found}
    overtaken = _overtaken(payloads)
    similarities = await _similarities(run, [query for query, _ in arms], lists, may_see, frozenset(payloads))
    passages = {
        passage_id: passage_of(passage_id, payload, similarities.get(passage_id))
        for passage_id, payload in payloads.items()
        if passage_id not in overtaken
    }
    return [
        Ranking(
            "lexical" if arm[0][0].using == LEXICAL else "dense",
            [
                passages[one.passage_id].model_copy(update={"query": query.query, "score": one.score})
                for one in _merged(arm, limit)
                if one.passage_id in passages
            ],
        )
        for (query, _), arm in zip(arms, lists, strict=True)
    ]


def _dense_looks(query: QueryVectors, may_see: Conditions, languages: Sequence[str], limit: int) -> list[Look]:
    """One look a language with a baseline, and one for all other languages, which get the mean baseline."""
    if query.dense is None:
        return []
    vector = query.dense.tolist()
    if not query.baselines:
        return [Look(DENSE, vector, may_see, limit)]
    looks = [
        Look(DENSE, vector, (*may_see, AnyOf("language", (language,))), limit, baseline=baseline)
        for language, baseline in query.baselines.items()
        if not languages or language in languages
    ]
    if not languages or not query.baselines.keys() >= set(languages):
        others = (*may_see, NoneOf("language", tuple(query.baselines)))
        looks.append(Look(DENSE, vector, others, limit, baseline=statistics.fmean(query.baselines.values())))
    return looks


def _merged(arm: Sequence[tuple[Look, Sequence[Scored]]], limit: int) -> list[Scored]:
    """The best of an arm's looks by what they have beyond their baselines."""
    found = [Scored(one.passage_id, one.score - look.baseline, one.payload) for look, ones in arm for one in ones]
    return found if len(arm) == 1 else sorted(found, key=lambda one: (-one.score, one.passage_id))[:limit]


def _overtaken(payloads: dict[str, dict[str, Any]]) -> set[str]:
    """Passages of a version of a document of which a later one was found: it is just being replaced."""
    latest: dict[str, tuple[float, str]] = {}
    for payload in payloads.values():
        version = (payload["submitted_at"], payload["edition"])
        latest[payload["document_id"]] = max(version, latest.get(payload["document_id"], version))
    return {
        passage_id
        for passage_id, payload in payloads.items()
        if payload["edition"] != latest[payload["document_id"]][1]
    }


async def _similarities(
    run: Run,
    queries: Sequence[QueryVectors],
    lists: Sequence[Sequence[tuple[Look, Sequence[Scored]]]],
    may_see: Conditions,
    everything: frozenset[str],
) -> dict[str, float]:
    """Greatest cosine by passage id; the engine computes those that the dense arms did not bring."""
    best: dict[str, float] = {}
    missing: list[Look] = []
    for query, arm in zip(queries, lists, strict=True):
        if query.hypothetical or arm[0][0].using == LEXICAL:
            continue
        for _, found in arm:
            _keep_best(best, found)
        if rest := everything - {one.passage_id for _, found in arm for one in found}:
            missing.append(Look(DENSE, arm[0][0].vector, may_see, len(rest), among=rest, with_payload=False))
    for found in await run(missing) if missing else []:
        _keep_best(best, found)
    return best


def _keep_best(best: dict[str, float], found: Sequence[Scored]) -> None:
    for scored in found:
        cosine = min(1.0, max(-1.0, scored.score))
        best[scored.passage_id] = max(cosine, best.get(scored.passage_id, -1.0))
