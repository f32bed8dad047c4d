"""What the retriever decides: which passages are worth grading, which are the same, and what the trail says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from services.retriever.fusion import Fusion, fuse, raise_neighbours
from shared.contracts import Header, Passage, Retrieve, Route, TrailPassage, TrailStep
from shared.language import fold
from shared.passages import Ranking

EMBEDDER_DOWN: Final = "embedder unavailable: lexical search only"
NO_EMBEDDER: Final = "no embedder: lexical search only"
NO_VECTORS: Final = "collection has no vectors: lexical search only"
RERANKER_DOWN: Final = "re-ranking failed: passages in the order of the search"

_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class RetrievalPolicy:
    """How to search and what to keep."""

    collection: str
    """For jobs that name none."""
    fusion: Fusion = "zscore"
    candidates: int = 40
    """Passages that each arm brings for each query, at most."""
    feedback: int = 3
    """Best passages whose own neighbours count, too; 0 for none. Ranks are too even for it: rrf goes without."""
    feedback_weight: float = 0.17
    """How far they rise: standard deviations of the fused scores, for one of their own."""
    top_k: int = 8
    """Passages to keep where the job does not say."""
    top_k_comparative: int = 12
    """The same for comparisons, which need passages about several things."""
    duplicate_overlap: float = 0.9
    """Share of common words (Jaccard, in (0, 1]) from which two passages count as one."""
    rerank_candidates: int = 40
    """Passages that a re-ranker reads, where there is one."""

    @property
    def seeds(self) -> int:
        """Best passages whose neighbours are searched."""
        return 0 if self.fusion == "rrf" else self.feedback

    def wanted(self, asked: int | None, route: Route | None) -> int:
        """How many passages to keep."""
        return asked or (self.top_k_comparative if route == "comparative" else self.top_k)


def choose(
    rankings: Sequence[Ranking],
    policy: RetrievalPolicy,
    *,
    header: Header,
    top_k: int,
    neighbours: Sequence[Ranking] = (),
) -> tuple[Passage, ...]:
    """The best `top_k` passages that the asker may read, each once, with its fused score and the query it owes it to.

    The index has filtered by rights already; the rule is asked again here, where no filter language can fail it.
    `neighbours` are the lists of passages near to the best ones.
    """
    may_read = header.principal.may_read
    fused = fuse(_only(rankings, may_read), policy.fusion, candidates=policy.candidates, language=header.language)
    raised = raise_neighbours(fused, _only(neighbours, may_read), policy.feedback_weight)
    return tuple(fold_duplicates(raised.best_first(), policy.duplicate_overlap, limit=top_k))


def _only(rankings: Sequence[Ranking], may_read: Callable[[Passage], bool]) -> list[Ranking]:
    return [Ranking(ranking.arm, list(filter(may_read, ranking.passages))) for ranking in rankings]


def fold_duplicates(passages: Iterable[Passage], overlap: float, *, limit: int) -> list[Passage]:
    """The first `limit` passages without those that repeat an earlier one, word for word or nearly.

    Of two that are the same the one with an anchor stays, in the place of the better one: a reader can follow it, and a
    web page says the same as its PDF. Passages with different numbers or codes are never the same: tables and error
    lists differ in little else.
    """
    kept: list[Passage] = []
    words_of: list[frozenset[str]] = []
    for passage in passages:
        words = frozenset(_WORD.findall(fold(passage.text)))
        twin = next((place for place, known in enumerate(words_of) if _same(words, known, overlap)), None)
        if twin is None:
            if len(kept) == limit:
                break
            kept.append(passage)
            words_of.append(words)
        elif kept[twin].anchor is None and passage.anchor is not None:
            kept[twin] = passage.model_copy(update={"score": kept[twin].score})
    return kept


def _same(one: frozenset[str], other: frozenset[str], overlap: float) -> bool:
    if len(one & other) < overlap * len(one | other):
        return False
    return not any(any(map(str.isdigit, word)) for word in one ^ other)


def reranked(passages: Sequence[Passage], scores: Sequence[float], *, top_k: int) -> tuple[Passage, ...]:
    """The best `top_k` by these scores, `scores[i]` being that of `passages[i]`; ties as they stood."""
    order = sorted(range(len(passages)), key=lambda place: -scores[place])
    return tuple(passages[place].model_copy(update={"score": scores[place]}) for place in order[:top_k])


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
    found = [passage for ranking in rankings for passage in ranking.passages]
    return bool(found) and all(passage.similarity is None for passage in found)
