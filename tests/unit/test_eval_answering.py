"""What the answers are worth, against values worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.answering import answer_sheet, contains_answer, overlap_f1
from evals.claims import support
from evals.dataset import Gold
from evals.words import tables
from shared.contracts import Answered, StageUsage
from tests.unit.test_eval_measures import cited, ended, passage, question, searched


@pytest.mark.parametrize(
    ("answer", "wanted", "contains"),
    [
        ("It costs 2\u202f000 francs [1].", ("2 000",), True),
        ("It costs 120 francs.", ("12",), False),
        ("L'ÉCOLE du Simplon", ("ecole",), True),
        ("Ещё шесть часов", ("еще шесть",), True),
        ("On 18 November 2025.", ("18 Nov", "18 november 2025"), True),
        ("Anything", ("—",), False),
        ("Anything", (), False),
    ],
)
def test_an_answer_contains(answer: str, wanted: tuple[str, ...], contains: bool) -> None:
    assert contains_answer(answer, wanted) is contains


def test_answers_by_hand() -> None:
    gold, other = passage("a", text="It weighs 2 kg."), passage("b", text="No.")
    known = {"answers": ("2 kg",)}
    runs = [
        ended(
            searched(question(Gold("a"), name="1", **known), gold, other),  # type: ignore[arg-type]
            "answered",
            "It weighs 2 kg. [1]",
            cited(gold, "weighs 2 kg"),
            cited(other, "Yes").model_copy(update={"n": 2}),
            calls=2,
        ),
        ended(searched(question(Gold("a"), name="2", **known), gold), "abstained", "I can't tell: 2 kg?"),  # type: ignore[arg-type]
        ended(searched(question(name="3", answerable=False), other), "abstained"),
        ended(searched(question(name="4", answerable=False), other), "answered", "No. [1]", cited(other, "No.")),
    ]
    sheet = answer_sheet(runs)
    assert sheet.figures["all"] == pytest.approx(
        {
            "n": 4,
            "contains": 1 / 2,
            "when answered": 1.0,
            "EM": 0.0,
            "F1": 2 * 2 / (4 + 2),
            "answered": 1 / 2,
            "abstain P": 1 / 2,
            "abstain R": 1 / 2,
            "cite P": 1 / 2,
            "cite R": 1.0,
            "verbatim": 2 / 3,
            "unsupported": 0.0,
            "language": 1.0,
        }
    )
    assert sheet.figures["cost"] == pytest.approx(
        {"hops": 0, "calls": 0.5, "tokens": 5.5, "price": None, "s p50": 0.1, "s p95": 0.1}
    )
    assert sheet.facts["statuses"]["unanswerable"] == {"abstained": 1, "answered": 1}
    assert sheet.facts["usage"] == {"generator": {"calls": 2, "prompt": 20, "completion": 2}}
    assert sheet.per_query["2"] == {"rightly silent or not": 0.0, "contains": 0.0}


@pytest.mark.parametrize(
    ("answer", "wanted", "f1"),
    [
        ("The Alps.", ("alps",), 1.0),
        ("L'école du Simplon", ("une ecole du simplon",), 1.0),
        ("в 1905 году", ("1905", "в 1905"), 2 * 2 / (3 + 2)),
        ("nothing", ("at all",), 0.0),
        ("the", ("a",), 0.0),
    ],
)
def test_overlap_as_squad_counts_it(answer: str, wanted: tuple[str, ...], f1: float) -> None:
    assert overlap_f1(answer, wanted) == pytest.approx(f1)


@given(st.text(), st.text())
def test_overlap_is_a_share_and_symmetric(one: str, other: str) -> None:
    assert overlap_f1(one, [other]) == pytest.approx(overlap_f1(other, [one]))
    assert 0 <= overlap_f1(one, [other]) <= 1


TENT = passage("a", text="The tent weighs 2 kg and sleeps two people in any season. It is green.").model_copy(
    update={"language": "en"}
)


@pytest.mark.parametrize(
    ("answer", "holds"),
    [
        ("It is green. [1]", [True]),
        ("According to the documents:\n\nThe tent weighs 2 kg and sleeps two people in any season. [1]", [True]),
        ("Two people can sleep in the tent. [1] Penguins adore swimming around Antarctica. [1]", [True, False]),
        ("Penguins adore swimming around Antarctica.", [False]),
        ("", []),
    ],
)
def test_sentences_are_held_against_what_they_cite(answer: str, holds: list[bool]) -> None:
    run = ended(searched(question(Gold("a")), TENT), "answered", answer, cited(TENT, "It is green."))
    assert run.outcome is not None
    assert support(run, run.outcome) == holds


def test_a_paraphrase_in_another_language_is_not_counted() -> None:
    run = ended(searched(question(Gold("a"), language="fr"), TENT), "answered", "", cited(TENT, "It is green."))
    said = "La tente pèse 2 kg. [1] It is green. [1]"
    outcome = run.outcome.model_copy(update={"answer": said, "language": "fr"}) if run.outcome else None
    assert outcome is not None
    assert support(run, outcome) == [True]


@pytest.mark.parametrize(
    ("answer", "writer", "match"),
    [
        ("Согласно документам:\n\nThe tent weighs 2 kg. [1]", "extractive", 1.0),
        ("The tent weighs 2 kg. [1]", "a-model", 0.0),
        ("", "a-model", None),
    ],
)
def test_an_answer_speaks_the_language_of_its_question(answer: str, writer: str, match: float | None) -> None:
    run = searched(question(Gold("a"), language="ru"), TENT)
    run.outcome = Answered(
        job_id="j",
        entry_id="0-0",
        status="answered",
        answer=answer,
        writer=writer,
        language="ru",
        versions={"index": "1"},
    )
    sheet = answer_sheet([run])
    assert sheet.figures["all"]["language"] == match
    assert sheet.facts["versions"] == {"index 1": 1}


def test_the_price_is_that_of_the_calls_with_a_price() -> None:
    runs = [ended(searched(question(name=str(n), answerable=False), TENT), "abstained") for n in range(2)]
    assert answer_sheet(runs).figures["cost"]["price"] is None
    assert runs[0].outcome is not None
    usage = (StageUsage(stage="grader", calls=1, cost=0.2), StageUsage(stage="generator", calls=1))
    runs[0].outcome = runs[0].outcome.model_copy(update={"usage": usage})
    assert answer_sheet(runs).figures["cost"]["price"] == pytest.approx(0.1)


def test_many_figures_are_shown_in_two_tables() -> None:
    figures = answer_sheet([ended(searched(question(Gold("a")), TENT), "answered", "It is green.")]).figures
    first, second, cost = tables(figures)
    assert list(first["all"])[:2] == ["n", "contains"]
    assert list(second["all"])[:2] == ["n", "cite P"]
    assert "hops" in cost["cost"]
