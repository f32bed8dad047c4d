"""Ranked lists become one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from shared.contracts import Passage
from shared.passages import Ranking

Fusion: TypeAlias = Literal["zscore", "dbsf", "rrf"]

RRF_K: Final = 60
"""How far the top ranks stand out; the value of Cormack, Clarke and Büttcher (SIGIR 2009)."""
_WORDS_ACROSS_LANGUAGES: Final = 0.3
"""Weight of the lexical arm for passages in another language than the question: the words they share are names and
codes, and that they share no other says nothing."""
_DBSF_SPREADS: Final = 3
"""Standard deviations around the mean that DBSF maps to [0, 1], as Qdrant's does."""


@dataclass(frozen=True, slots=True)
class Fused:
    """All passages of several lists with one score each, of no fixed range."""

    passages: Mapping[str, Passage]
    scores: Mapping[str, float]

    def best_first(self) -> Iterator[Passage]:
        """The passages with these scores; ties by id."""
        for name in sorted(self.scores, key=lambda passage_id: (-self.scores[passage_id], passage_id)):
            yield self.passages[name].model_copy(update={"score": self.scores[name]})


def fuse(rankings: Sequence[Ranking], fusion: Fusion, *, candidates: int, language: str) -> Fused:
    """All passages of these lists, for a question in `language`. `query` is that of the list where one ranked best.

    zscore: sum of the lists' standardised scores, where a passage missing from a full list (of `candidates`) counts as
    its last one, and from a shorter list as 0: it has no word in common. dbsf: sum of the lists' scores, each mapped
    from three deviations around its mean to [0, 1]; what is missing adds nothing. rrf: sum of 1 / (60 + rank).
    """
    best: dict[str, tuple[int, Passage]] = {}
    for ranking in rankings:
        for rank, passage in enumerate(ranking.passages):
            if passage.passage_id not in best or rank < best[passage.passage_id][0]:
                best[passage.passage_id] = (rank, passage)
    scores = dict.fromkeys(best, 0.0)
    for ranking in rankings:
        for passage_id, score in _gained(ranking.passages, fusion, best, candidates).items():
            foreign = best[passage_id][1].language not in (language, "und")
            weight = _WORDS_ACROSS_LANGUAGES if foreign and ranking.arm == "lexical" else 1.0
            scores[passage_id] += weight * score
    return Fused({passage_id: passage for passage_id, (_, passage) in best.items()}, scores)


def raise_neighbours(fused: Fused, neighbours: Sequence[Ranking], weight: float) -> Fused:
    """The same after every list of neighbours of its best passages has raised those in it.

    A neighbour gains `weight` standard deviations of the fused scores for each deviation that it stands above the last
    of its list. Passages that only neighbours brought start from the lowest fused score.
    """
    known, scores = dict(fused.passages), dict(fused.scores)
    lowest, unit = min(scores.values(), default=0.0), weight * _spread(scores.values())
    for ranking in neighbours:
        spread = _spread([passage.score for passage in ranking.passages])
        for passage in ranking.passages if spread else ():
            known.setdefault(passage.passage_id, passage)
            gain = unit * (passage.score - ranking.passages[-1].score) / spread
            scores[passage.passage_id] = scores.get(passage.passage_id, lowest) + gain
    return Fused(known, scores)


def _gained(
    passages: Sequence[Passage], fusion: Fusion, everything: Collection[str], candidates: int
) -> dict[str, float]:
    if fusion == "rrf":
        return {passage.passage_id: 1.0 / (RRF_K + rank) for rank, passage in enumerate(passages, start=1)}
    found = {passage.passage_id: passage.score for passage in passages}
    if fusion == "dbsf":
        return _within_spread(found)
    absent = min(found.values(), default=0.0) if len(found) >= candidates else 0.0
    return _standardised({passage_id: found.get(passage_id, absent) for passage_id in everything})


def _standardised(scores: dict[str, float]) -> dict[str, float]:
    mean, spread = _mean(scores.values()), _spread(scores.values())
    # A list of equals tells nothing apart.
    return {passage_id: (score - mean) / spread for passage_id, score in scores.items()} if spread else {}


def _within_spread(scores: dict[str, float]) -> dict[str, float]:
    mean, reach = _mean(scores.values()), _DBSF_SPREADS * _spread(scores.values())
    if not reach:
        return dict.fromkeys(scores, 0.5)
    return {name: min(1.0, max(0.0, (score - mean + reach) / (2 * reach))) for name, score in scores.items()}


def _mean(scores: Collection[float]) -> float:
    return float(np.mean(list(scores))) if scores else 0.0


def _spread(scores: Collection[float]) -> float:
    """Standard deviation; 0 for scores that differ by no more than rounding."""
    if not scores or min(scores) == max(scores):
        return 0.0
    return float(np.std(list(scores)))
