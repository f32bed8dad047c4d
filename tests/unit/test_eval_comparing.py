"""Two reports side by side: real differences are named, chance is not, and what else differs is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.comparing import compare, holm, interval, p_value
from evals.sheet import AskedFacts, DatasetFacts, InvalidReport, Sheet, StageSheet, read_sheet

QUESTIONS = 60


def sheet(values: dict[str, list[float]], *, settings: str = "rrf", names: list[str] | None = None) -> Sheet:
    """A report of one stage with these values by measure."""
    names = names or [f"q{number}" for number in range(QUESTIONS)]
    per_query = {name: {measure: each[place] for measure, each in values.items()} for place, name in enumerate(names)}
    means = {measure: float(np.mean(each)) for measure, each in values.items()}
    return Sheet(
        cairn="1",
        date="2025-01-01",
        command="cairn eval",
        dataset=DatasetFacts(
            name="set", split="dev", fingerprint="f", corpus="c", documents=1, passages=1, questions=len(names)
        ),
        settings={"fusion": settings},
        settings_fingerprint="s",
        questions={name: AskedFacts(question="?", language="en") for name in names},
        stages={"retrieval": StageSheet(figures={"all": {"n": len(names), **means}}, per_query=per_query)},
    )


def noisy(*, shift: float, seed: int) -> list[float]:
    """Values around .5 + shift, the same noise for every seed's questions but not for their order."""
    return list(np.clip(0.5 + shift + np.random.default_rng(seed).normal(0, 0.1, QUESTIONS), 0, 1))


def test_a_real_difference_is_significant() -> None:
    comparison = compare(sheet({"RR": noisy(shift=0, seed=1)}), sheet({"RR": noisy(shift=0.15, seed=2)}, settings="z"))
    (difference,) = comparison.differences
    assert difference.verdict == "significantly better"
    assert difference.p < 0.01
    assert difference.low < difference.mean < difference.high
    assert difference.low > 0
    assert comparison.settings == {"fusion": ("rrf", "z")}
    assert comparison.warnings == ()


def test_chance_is_not() -> None:
    comparison = compare(sheet({"RR": noisy(shift=0, seed=3)}), sheet({"RR": noisy(shift=0, seed=4)}))
    (difference,) = comparison.differences
    assert difference.verdict == "no significant difference"
    assert difference.low < 0 < difference.high
    assert "the settings are the same" in comparison.warnings[0]


def test_a_lower_brier_score_is_better() -> None:
    (difference,) = compare(
        sheet({"Brier": noisy(shift=0.2, seed=5)}), sheet({"Brier": noisy(shift=0, seed=6)})
    ).differences
    assert difference.verdict == "significantly better"


def test_the_same_reports_twice_give_the_same_words() -> None:
    one, other = sheet({"RR": noisy(shift=0, seed=7)}), sheet({"RR": noisy(shift=0.02, seed=8)})
    assert compare(one, other) == compare(one, other)


def test_equal_values_differ_in_nothing() -> None:
    same = sheet({"RR": noisy(shift=0, seed=9)})
    (difference,) = compare(same, same).differences
    assert (difference.p, difference.low, difference.high) == (1, 0, 0)


def test_few_questions_are_permuted_exactly() -> None:
    before, after = np.zeros(5), np.ones(5)
    assert p_value(before, after) == pytest.approx(2 / 2**5)
    assert interval(after - before) == (1, 1)


def test_only_common_questions_are_compared_and_it_is_said() -> None:
    one = sheet({"RR": [0.0, 1.0, 0.5]}, names=["a", "b", "c"])
    other = sheet({"RR": [1.0, 0.5, 1.0]}, names=["b", "c", "d"])
    comparison = compare(one, other)
    assert [(each.n, each.before, each.after) for each in comparison.differences] == [(2, 0.75, 0.75)]
    assert any("2 in both, 1 only before, 1 only after" in warning for warning in comparison.warnings)
    with pytest.raises(InvalidReport, match="no measure of two common questions"):
        compare(one, sheet({"RR": [1.0]}, names=["z"]))


def test_other_data_and_stages_are_pointed_out() -> None:
    one = sheet({"RR": noisy(shift=0, seed=1)})
    data = one.dataset.model_copy(update={"fingerprint": "other"})
    other = one.model_copy(update={"dataset": data, "stages": {**one.stages, "grading": StageSheet(figures={})}})
    warnings = " ".join(compare(one, other).warnings)
    assert "different data" in warnings
    assert "stages only after: grading" in warnings


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_only_raises_and_keeps_the_order(p_values: list[float]) -> None:
    corrected = holm(p_values)
    assert all(one <= other <= 1 for one, other in zip(p_values, corrected, strict=True))
    ordered = [other for _, other in sorted(zip(p_values, corrected, strict=True))]
    assert ordered == sorted(ordered)


def test_a_file_that_is_no_report(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    with pytest.raises(InvalidReport, match="can't be read"):
        read_sheet(path)
    path.write_text('{"format": "cairn-eval/0"}')
    with pytest.raises(InvalidReport, match="not a report of this version"):
        read_sheet(path)
    path.write_text(sheet({"RR": [1.0]}, names=["a"]).model_dump_json())
    assert read_sheet(path).dataset.name == "set"
