"""What the retriever decides, without an index or a model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.retriever.decision import RRF_K, Fusion, RetrievalPolicy, choose, fold_duplicates, fuse
from services.retriever.settings import RetrieverSettings
from shared.contracts import Passage, Principal

CANDIDATES = 5


def passage(name: str, score: float = 0.0, *, query: int = 0, text: str | None = None, **fields: object) -> Passage:
    known = {"passage_id": name, "document_id": "d", "title": "", "uri": "", "text": text or name}
    return Passage.model_validate(known | {"score": score, "query": query} | fields)


def ranking(*names: str, query: int = 0) -> list[Passage]:
    """One arm's list with falling scores."""
    return [passage(name, 10.0 - place, query=query) for place, name in enumerate(names)]


def names(passages: Sequence[Passage]) -> list[str]:
    return [one.passage_id for one in passages]


def test_rrf_sums_reciprocal_ranks() -> None:
    fused = fuse([ranking("a", "b"), ranking("b", "c")], "rrf", candidates=CANDIDATES)
    assert names(fused) == ["b", "a", "c"]
    assert [one.score for one in fused] == pytest.approx(
        [1 / (RRF_K + 2) + 1 / (RRF_K + 1), 1 / (RRF_K + 1), 1 / (RRF_K + 2)]
    )


def test_zscore_lets_a_clear_lead_count() -> None:
    by_meaning = [passage("a", 0.88), passage("b", 0.87), passage("c", 0.5)]
    by_words = [passage("b", 20.0), passage("a", 2.0), passage("c", 1.0)]
    assert names(fuse([by_meaning, by_words], "zscore", candidates=3)) == ["b", "a", "c"]
    assert names(fuse([by_meaning, by_words], "rrf", candidates=3)) == ["a", "b", "c"]  # a tie, by id


def test_zscore_a_single_word_match_stands_out() -> None:
    by_meaning = [passage(name, 0.9 - 0.001 * place) for place, name in enumerate("abcdefghijklmnopqrst")]
    assert names(fuse([by_meaning, [passage("t", 7.0)]], "zscore", candidates=20))[0] == "t"


def test_a_passage_owes_itself_to_the_query_that_ranked_it_best() -> None:
    lists = [ranking("a", "b", query=0), ranking("b", "a", query=1), ranking("a", query=2)]
    assert {one.passage_id: one.query for one in fuse(lists, "rrf", candidates=CANDIDATES)} == {"a": 0, "b": 1}


rankings = st.lists(
    st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=CANDIDATES).flatmap(
        lambda ids: st.lists(st.floats(0, 100, allow_subnormal=False), min_size=len(ids), max_size=len(ids)).map(
            lambda scores: [passage(*pair) for pair in zip(ids, sorted(scores, reverse=True), strict=True)]
        )
    ),
    max_size=6,
)
fusions = st.sampled_from(["rrf", "zscore"])


@given(rankings, fusions)
def test_fusion_keeps_every_passage_once_best_first(lists: list[list[Passage]], fusion: Fusion) -> None:
    fused = fuse(lists, fusion, candidates=CANDIDATES)
    assert sorted(names(fused)) == sorted({one.passage_id for each in lists for one in each})
    scores = [one.score for one in fused]
    assert scores == sorted(scores, reverse=True)
    assert all(math.isfinite(score) for score in scores)


@given(rankings, fusions, st.randoms())
def test_the_order_of_the_lists_does_not_matter(lists: list[list[Passage]], fusion: Fusion, dice: object) -> None:
    shuffled = list(lists)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    scores = [
        {one.passage_id: one.score for one in fuse(each, fusion, candidates=CANDIDATES)} for each in (lists, shuffled)
    ]
    assert scores[0] == pytest.approx(scores[1])


@given(rankings, fusions)
def test_what_is_nowhere_worse_is_not_put_behind(lists: list[list[Passage]], fusion: Fusion) -> None:
    """First in every list means first in the end."""
    top = passage("top", 101.0)
    fused = fuse([[top, *each[: CANDIDATES - 1]] for each in lists], fusion, candidates=CANDIDATES)
    if fused:
        assert fused[0].score == pytest.approx(max(one.score for one in fused if one.passage_id == "top"))


@given(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=CANDIDATES))
def test_rrf_of_one_list_is_that_list(ids: list[str]) -> None:
    assert names(fuse([ranking(*ids)], "rrf", candidates=CANDIDATES)) == ids


LONG = "Tents may be returned within thirty days if they are dry, clean and in their own bag, says our policy"


def test_repetitions_are_folded_to_the_best() -> None:
    folded = fold_duplicates(
        [
            passage("a", text=LONG),
            passage("b", text=f"  {LONG.upper()}!"),
            passage("c", text=f"{LONG} today"),
            passage("d", text="Pegs"),
            passage("e", text=LONG.replace("thirty", "30")),
        ],
        0.9,
        limit=10,
    )
    assert names(folded) == ["a", "d", "e"]


def test_folding_stops_at_the_limit() -> None:
    many = [passage(str(number), text=f"word{number}") for number in range(10)]
    assert names(fold_duplicates(many, 0.9, limit=3)) == ["0", "1", "2"]


def test_what_the_asker_may_not_read_never_leaves() -> None:
    lists = [
        [
            passage("other tenant", tenant="other"),
            passage("other role", acl=("board",)),
            passage("other region", region="us"),
            passage("readable", acl=("hr",), region="eu"),
        ]
    ]
    principal = Principal(roles=("hr",), region="eu")
    chosen = choose(lists, RetrievalPolicy("docs", fusion="rrf"), principal=principal, top_k=10)
    assert names(chosen) == ["readable"]
    assert chosen[0].score == pytest.approx(1 / (RRF_K + 1))  # the others took no rank


def test_the_settings_become_a_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_RETRIEVER_FUSION", "zscore")
    monkeypatch.setenv("CAIRN_RETRIEVER_CANDIDATES", "7")
    assert RetrieverSettings().policy("docs") == RetrievalPolicy("docs", fusion="zscore", candidates=7)
