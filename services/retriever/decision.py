"""What the retriever decides: how ranked lists become one, which passages are the same, and what the trail says."""

from __future__ import annotations

import re
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from shared.contracts import Header, Passage, Principal, Retrieve, TrailPassage, TrailStep
from shared.language import fold

Fusion: TypeAlias = Literal["rrf", "zscore"]
Ranking: TypeAlias = Sequence[Passage]
"""What one arm found for one query, best first; `score` is the arm's own, `query` the index of the query."""

RRF_K: Final = 60
"""How far the top ranks stand out; the value of Cormack, Clarke and Büttcher (SIGIR 2009)."""

EMBEDDER_DOWN: Final = "embedder unavailable: lexical search only"
NO_EMBEDDER: Final = "no embedder: lexical search only"
NO_VECTORS: Final = "collection has no vectors: lexical search only"

_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class RetrievalPolicy:
    """How to search and what to keep."""

    collection: str
    """For jobs that name none."""
    fusion: Fusion = "zscore"
    candidates: int = 40
    """Passages that each arm brings for each query, at most."""
    duplicate_overlap: float = 0.9
    """Share of common words (Jaccard, in (0, 1]) from which two passages count as one."""


def choose(
    rankings: Sequence[Ranking], policy: RetrievalPolicy, *, principal: Principal, top_k: int
) -> tuple[Passage, ...]:
    """The best `top_k` passages that the asker may read, each once, with its fused score and the query it owes it to.

    The index has filtered by rights already; the rule is asked again here, where no filter language can fail it.
    """
    readable = [[passage for passage in ranking if principal.may_read(passage)] for ranking in rankings]
    fused = fuse(readable, policy.fusion, candidates=policy.candidates)
    return tuple(fold_duplicates(fused, policy.duplicate_overlap, limit=top_k))


def fuse(rankings: Sequence[Ranking], fusion: Fusion, *, candidates: int) -> list[Passage]:
    """One list of all passages, best first; ties by id. `query` is that of the list where a passage ranked best.

    rrf: sum of 1 / (60 + rank) over the lists. zscore: sum of the lists' standardised scores, where a passage missing
    from a full list (of `candidates`) counts as its last one, and from a shorter list as 0: it has no word in common.
    """
    best: dict[str, tuple[int, Passage]] = {}
    for ranking in rankings:
        for rank, passage in enumerate(ranking):
            if passage.passage_id not in best or rank < best[passage.passage_id][0]:
                best[passage.passage_id] = (rank, passage)
    scores = dict.fromkeys(best, 0.0)
    for ranking in rankings:
        gained = _by_rank(ranking) if fusion == "rrf" else _standardised(ranking, best, candidates)
        for passage_id, score in gained.items():
            scores[passage_id] += score
    ordered = sorted(scores, key=lambda passage_id: (-scores[passage_id], passage_id))
    return [best[passage_id][1].model_copy(update={"score": scores[passage_id]}) for passage_id in ordered]


def _by_rank(ranking: Ranking) -> dict[str, float]:
    return {passage.passage_id: 1.0 / (RRF_K + rank) for rank, passage in enumerate(ranking, start=1)}


def _standardised(ranking: Ranking, everything: Collection[str], candidates: int) -> dict[str, float]:
    found = {passage.passage_id: passage.score for passage in ranking}
    absent = min(found.values(), default=0.0) if len(found) >= candidates else 0.0
    scores = {passage_id: found.get(passage_id, absent) for passage_id in everything}
    mean, spread = statistics.fmean(scores.values() or [0.0]), statistics.pstdev(scores.values() or [0.0])
    # A list of equals tells nothing apart.
    return {passage_id: (score - mean) / spread for passage_id, score in scores.items()} if spread else {}


def fold_duplicates(passages: Sequence[Passage], overlap: float, *, limit: int) -> list[Passage]:
    """The first `limit` passages without those that repeat an earlier one, word for word or nearly.

    Passages with different numbers or codes are never the same: tables and error lists differ in little else.
    """
    kept: list[tuple[Passage, frozenset[str]]] = []
    for passage in passages:
        if len(kept) == limit:
            break
        words = frozenset(_WORD.findall(fold(passage.text)))
        if not any(_same(words, known, overlap) for _, known in kept):
            kept.append((passage, words))
    return [passage for passage, _ in kept]


def _same(one: frozenset[str], other: frozenset[str], overlap: float) -> bool:
    if len(one & other) < overlap * len(one | other):
        return False
    return not any(any(map(str.isdigit, word)) for word in one ^ other)


def search_header(
    msg: Retrieve, passages: Sequence[Passage], *, index_version: str, degraded: tuple[str, ...]
) -> Header:
    """The job's header with this search on its trail."""
    remembered = tuple(
        TrailPassage(passage_id=each.passage_id, origin=each.origin, score=round(each.score, 6), query=each.query)
        for each in passages
    )
    step = TrailStep(hop=msg.header.hop, route=msg.route, queries=msg.queries, passages=remembered)
    return msg.header.updated(step=step, degraded=degraded, versions={"index": index_version})


def went_by_words_alone(rankings: Sequence[Ranking]) -> bool:
    """Whether a search that had vectors came back without a single cosine: its collection was built without them."""
    found = [passage for ranking in rankings for passage in ranking]
    return bool(found) and all(passage.similarity is None for passage in found)
