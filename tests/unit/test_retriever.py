"""What the retriever decides, without an index or a model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.retriever.decision import RetrievalPolicy, choose, fold_duplicates
from services.retriever.fusion import RRF_K, Fused, Fusion, raise_neighbours
from services.retriever.fusion import fuse as fused_by
from services.retriever.settings import RetrieverSettings
from shared.contracts import Header, Passage, Principal
from shared.passages import Ranking

CANDIDATES = 5


def passage(name: str, score: float = 0.0, *, query: int = 0, text: str | None = None, **fields: object) -> Passage:
    known = {"passage_id": name, "document_id": "d", "title": "", "uri": "", "text": text or name}
    return Passage.model_validate(known | {"score": score, "query": query} | fields)


def ranking(*names: str, query: int = 0) -> list[Passage]:
    """One arm's list with falling scores."""
    return [passage(name, 10.0 - place, query=query) for place, name in enumerate(names)]


def fuse(rankings: Sequence[Sequence[Passage]], fusion: Fusion, *, candidates: int) -> list[Passage]:
    lists = [Ranking("dense", ranking) for ranking in rankings]
    return list(fused_by(lists, fusion, candidates=candidates, language="und").best_first())


def header(principal: Principal, language: str = "en") -> Header:
    return Header(job_id="j", entry_id="1-0", submitted_at=0.0, deadline=60.0, principal=principal, language=language)


def fused_of(passages: Sequence[Passage]) -> Fused:
    return Fused({one.passage_id: one for one in passages}, {one.passage_id: one.score for one in passages})


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
fusions = st.sampled_from(["rrf", "dbsf", "zscore"])


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
    asker = header(Principal(roles=("hr",), region="eu"))
    rankings = [Ranking("dense", each) for each in lists]
    chosen = choose(rankings, RetrievalPolicy("docs", fusion="rrf"), header=asker, top_k=10)
    assert names(chosen) == ["readable"]
    assert chosen[0].score == pytest.approx(1 / (RRF_K + 1))  # the others took no rank


def test_the_settings_become_a_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_RETRIEVER_FUSION", "zscore")
    monkeypatch.setenv("CAIRN_RETRIEVER_CANDIDATES", "7")
    assert RetrieverSettings().policy("docs") == RetrievalPolicy("docs", fusion="zscore", candidates=7)


def test_dbsf_maps_each_list_to_its_spread() -> None:
    fused = fuse([[passage("a", 4.0), passage("b", 2.0)], [passage("b", 7.0)]], "dbsf", candidates=CANDIDATES)
    # Mean 3, deviation 1: 0 is [0, 6]. A list of equals says 0.5.
    assert {one.passage_id: one.score for one in fused} == pytest.approx({"b": 2 / 6 + 0.5, "a": 4 / 6})


def test_neighbours_of_the_best_rise_by_how_near_they_are() -> None:
    fused = [passage("a", 4.0), passage("b", 2.0), passage("c", 0.0)]
    near = [[passage("c", 0.9), passage("new", 0.8), passage("b", 0.7)]]
    raised = list(raise_neighbours(fused_of(fused), [Ranking("dense", each) for each in near], 0.5).best_first())
    unit, spread = 0.5 * math.sqrt(8 / 3), math.sqrt(0.02 / 3)
    assert {one.passage_id: one.score for one in raised} == pytest.approx(
        {"a": 4.0, "b": 2.0, "c": unit * 0.2 / spread, "new": unit * 0.1 / spread}
    )
    assert names(raised)[0] == "a"


@given(rankings, st.floats(0, 1))
def test_raising_keeps_what_was_found_and_its_scores_never_fall(lists: list[list[Passage]], weight: float) -> None:
    fused = fuse(lists[:2], "zscore", candidates=CANDIDATES)
    after = raise_neighbours(fused_of(fused), [Ranking("dense", each) for each in lists[2:]], weight).scores
    before = {one.passage_id: one.score for one in fused}
    assert before.keys() <= after.keys()
    assert all(after[name] >= score - 1e-9 for name, score in before.items())
    assert raise_neighbours(fused_of(fused), [], weight) == fused_of(fused)


def test_comparisons_want_more_passages_unless_the_job_says_how_many() -> None:
    policy = RetrievalPolicy("docs", top_k=5, top_k_comparative=9)
    assert [policy.wanted(None, route) for route in ("factual", "comparative", None)] == [5, 9, 5]
    assert policy.wanted(3, "comparative") == 3
    assert RetrievalPolicy("docs", fusion="rrf").seeds == 0


def test_words_count_less_across_languages_and_their_absence_too() -> None:
    by_meaning = Ranking("dense", [passage("en", 0.6, language="en"), passage("ru", 0.5, language="ru")])
    by_words = Ranking("lexical", [passage("ru", 9.0, language="ru"), passage("ru2", 8.0, language="ru")])
    asked_in = {
        language: fused_by([by_meaning, by_words], "zscore", candidates=2, language=language).scores
        for language in ("ru", "en")
    }
    # That the English passage shares no word with a Russian question weighs less than with an English one.
    assert asked_in["ru"]["en"] > asked_in["en"]["en"]
    # And the words of a Russian passage weigh less for an English question.
    assert asked_in["en"]["ru"] < asked_in["ru"]["ru"]
    undetermined = [
        Ranking(each.arm, [one.model_copy(update={"language": "und"}) for one in each.passages])
        for each in (by_meaning, by_words)
    ]
    fused = fused_by(undetermined, "zscore", candidates=2, language="ru").scores
    assert (fused["en"], fused["ru"]) == (asked_in["en"]["en"], asked_in["ru"]["ru"])


def test_of_twins_the_one_that_can_be_linked_stays_in_the_better_place() -> None:
    pdf, page = (
        passage("pdf", 3.0, text="Tents are returned."),
        passage("page", 1.0, text="Tents are returned.", anchor="a"),
    )
    other = passage("other", 2.0, text="Pegs are made of steel.")
    assert [(one.passage_id, one.score) for one in fold_duplicates([pdf, other, page], 0.9, limit=5)] == [
        ("page", 3.0),
        ("other", 2.0),
    ]
    assert names(fold_duplicates([page, other, pdf], 0.9, limit=5)) == ["page", "other"]
    assert names(fold_duplicates([pdf, other, page], 0.9, limit=2)) == ["page", "other"]
    assert names(fold_duplicates([pdf, other, page], 0.9, limit=0)) == []
