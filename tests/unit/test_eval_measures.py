"""The measures, against values worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.dataset import EvalQuestion, Gold, JudgedPair
from evals.deciding import balanced_accuracy, decision_sheet
from evals.figures import quantile
from evals.grading import auc, brier, calibration_error, grading_sheet, reliability
from evals.measures import MEASURES, retrieval_sheet, units, values_of
from evals.running import JudgedScore, Run
from shared.contracts import (
    Answered,
    Citation,
    Generate,
    Grade,
    Header,
    Passage,
    Principal,
    Question,
    StageUsage,
    Status,
    Verdict,
)

HEADER = Header(job_id="j", entry_id="0-0", submitted_at=0, deadline=60)
SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=20)


def passage(document_id: str, anchor: str | None = None, text: str = "text") -> Passage:
    name = f"{document_id}/{anchor}/{text}"
    return Passage(passage_id=name, document_id=document_id, title="", uri="", anchor=anchor, text=text)


def question(
    *gold: Gold, name: str = "q", answerable: bool = True, answers: tuple[str, ...] = (), language: str = "en"
) -> EvalQuestion:
    return EvalQuestion(name, "?", language, None, answerable, answers, gold, Principal())


def searched(asked: EvalQuestion, *passages: Passage) -> Run:
    found = Grade(header=HEADER, asked=Question(question="?"), route="factual", queries=("?",), passages=passages)
    return Run(asked, found=found, seconds={"retrieve": 0.1})


def decided(run: Run, verdict: Verdict) -> Run:
    run.decided = Generate(header=HEADER, asked=Question(question="?"), route="factual", verdict=verdict)
    return run


def ended(run: Run, status: Status, answer: str = "", *citations: Citation, calls: int = 0) -> Run:
    usage = (StageUsage(stage="generator", calls=calls, prompt_tokens=10 * calls, completion_tokens=calls),)
    run.outcome = Answered(
        job_id="j", entry_id="0-0", status=status, answer=answer, citations=citations, usage=usage if calls else ()
    )
    return run


def cited(of: Passage, quote: str) -> Citation:
    return Citation(
        n=1, passage_id=of.passage_id, document_id=of.document_id, title="", uri="", section="", quote=quote
    )


def test_retrieval_by_hand() -> None:
    values = values_of({"q": ["x", "a", "y", "b"], "none": ["x"]}, {"q": {"a": 1, "b": 1}, "none": {"a": 1}})
    gain, ideal = 1 / math.log2(3) + 1 / math.log2(5), 1 + 1 / math.log2(3)
    assert values["q"] == pytest.approx({"nDCG@10": gain / ideal, "R@5": 1.0, "R@10": 1.0, "P@5": 0.4, "RR": 0.5})
    assert values["none"] == dict.fromkeys(MEASURES, 0.0)


def test_an_empty_ranking_counts_as_nothing_found() -> None:
    assert values_of({}, {"q": {"a": 1}}) == {"q": dict.fromkeys(MEASURES, 0.0)}
    assert values_of({}, {}) == {}


@given(st.permutations(list("abcdefgh")), st.integers(1, 7))
def test_what_is_relevant_moving_up_never_lowers_a_measure(ranking: list[str], place: int) -> None:
    better = [*ranking]
    better[place - 1], better[place] = better[place], better[place - 1]
    relevant = {"q": {ranking[place]: 1}}
    before, after = values_of({"q": ranking}, relevant)["q"], values_of({"q": better}, relevant)["q"]
    assert all(0 <= before[name] <= after[name] <= 1 for name in MEASURES)


def test_a_section_counts_once_and_at_its_first_passage() -> None:
    asked = question(Gold("faq", "ropes"), Gold("guide"))
    found = [passage("faq", "tents"), passage("faq", "ropes"), passage("faq", "ropes", "more"), passage("guide", "x")]
    names = units(asked, found)
    assert names[1] == "faq#ropes"
    assert names[3] == "guide"
    assert len(set(names)) == 4


def test_retrieval_figures_by_group() -> None:
    a, b = passage("a"), passage("b")
    runs = [
        searched(question(Gold("a", language="en"), name="1"), a, b),
        searched(question(Gold("b", language="en"), name="2", language="ru"), a, b),
        searched(question(name="3", answerable=False), a, b),
    ]
    sheet = retrieval_sheet(runs)
    assert sheet.figures["all"]["n"] == 2
    assert sheet.figures["all"]["RR"] == pytest.approx(0.75)
    assert sheet.figures["pair.ru-en"]["RR"] == pytest.approx(0.5)
    assert sheet.figures["all"]["ms p50"] == pytest.approx(100)
    assert sheet.facts["without_relevant"] == 1
    assert sheet.per_query["2"]["RR"] == 0.5


def test_searches_narrowed_to_a_language() -> None:
    asked = question(Gold("en/faq", "ropes", "en"), Gold("fr/faq", "ropes", "fr"), language="fr")
    run = searched(asked, passage("fr/faq", "ropes"))
    run.narrowed = {"en": (passage("en/faq", "tents"),), "fr": (passage("fr/faq", "ropes"),)}
    figures = retrieval_sheet([run]).figures
    assert figures["narrowed.fr-en"] == {"n": 1, "document@5": 1, "section@5": 0}
    assert figures["narrowed.fr-fr"] == {"n": 1, "document@5": 1, "section@5": 1}
    assert figures["narrowed.fr-any"] == {"n": 1, "document@5": 1, "section@5": 1}


def test_auc_by_hand() -> None:
    assert auc([0.9, 0.4], [0.4, 0.1]) == pytest.approx(3.5 / 4)
    assert auc([0.9], []) is None


@given(SCORES, SCORES)
def test_auc_of_the_others_is_what_is_left(relevant: list[float], irrelevant: list[float]) -> None:
    one, other = auc(relevant, irrelevant), auc(irrelevant, relevant)
    assert one is not None
    assert other is not None
    assert one + other == pytest.approx(1)


def test_brier_and_reliability_by_hand() -> None:
    scores, labels = [0.8, 0.4, 0.45, 1.0], [True, False, True, True]
    assert brier(scores, labels) == pytest.approx((0.04 + 0.16 + 0.3025 + 0) / 4)
    bins = reliability(scores, labels)
    assert [(each["from"], each["n"], each["relevant"]) for each in bins] == [(0.4, 2, 0.5), (0.8, 1, 1.0), (0.9, 1, 1)]
    assert calibration_error(bins) == pytest.approx((2 * 0.075 + 0.2 + 0) / 4)
    assert reliability([], []) == []
    assert calibration_error([]) is None


def test_grading_sets_every_origin_against_all_that_is_relevant() -> None:
    def judged(score: float | None, origin: str, *, relevant: bool) -> JudgedScore:
        return JudgedScore(JudgedPair("q", origin, relevant, origin), "en", score)

    sheet = grading_sheet(
        [
            judged(0.9, "gold", relevant=True),
            judged(0.5, "gold", relevant=True),
            judged(0.7, "bm25", relevant=False),
            judged(0.1, "random", relevant=False),
            judged(None, "random", relevant=False),
        ]
    )
    assert sheet.figures["all"]["AUC"] == pytest.approx(0.75)
    assert sheet.figures["all"]["ungraded"] == 1
    assert sheet.figures["origin.bm25"]["AUC"] == pytest.approx(0.5)
    assert sheet.figures["origin.random"]["AUC"] == pytest.approx(1)
    assert "origin.gold" not in sheet.figures
    assert sheet.per_query["q"]["Brier"] == pytest.approx((0.01 + 0.25 + 0.49 + 0.01) / 4)


def test_grading_shows_what_a_cascade_would_save_and_cost() -> None:
    judged = [
        JudgedScore(JudgedPair("q", str(score), relevant, "gold"), "en", score)
        for score, relevant in ((0.1, True), (0.5, False), (0.9, True))
    ]
    sheet = grading_sheet(judged, (0.2, 0.8))
    assert sheet.figures["cascade"] == {"n": 3, "asked": 1 / 3, "wrong": 1 / 3, "wrong alone": 1 / 2}
    assert "cascade" not in grading_sheet(judged).figures


def test_balanced_accuracy_by_hand() -> None:
    assert balanced_accuracy([True, True, False, False], [True, False, False, False]) == pytest.approx((1 + 2 / 3) / 2)
    assert balanced_accuracy([True], [True]) is None


def test_verdicts_by_what_there_was() -> None:
    gold, other = passage("a"), passage("b")
    runs = [
        decided(searched(question(Gold("a"), name="1"), gold), "correct"),
        decided(searched(question(Gold("a"), name="2"), other), "ambiguous"),
        decided(searched(question(name="3", answerable=False), other), "correct"),
        decided(searched(question(name="4", answerable=False), other), "incorrect"),
        decided(searched(question(Gold("a"), name="5"), other, gold), "correct"),
    ]
    sheet = decision_sheet(runs, top_k=1)
    assert sheet.facts["verdicts"]["found"] == {"correct": 1, "ambiguous": 0, "incorrect": 0}
    assert sheet.facts["verdicts"]["missed"] == {"correct": 1, "ambiguous": 1, "incorrect": 0}
    assert sheet.figures["all"]["balanced"] == pytest.approx((1 + 2 / 4) / 2)
    assert sheet.figures["all"]["lenient"] == pytest.approx((1 + 1 / 4) / 2)
    assert sheet.per_query["3"] == {"right": 0.0, "right, lenient": 0.0}


def test_quantiles_lie_between_neighbours() -> None:
    assert quantile([1, 2, 3, 4], 0.5) == pytest.approx(2.5)
    assert quantile([], 0.5) is None
