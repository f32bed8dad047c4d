"""The fit of the embedded judge: how scores are made of probabilities, and what was shipped."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from evals.fit_judge import BESIDE, SCALE, scored
from evals.judge_data import fingerprint
from shared.clients.judge import embedded
from shared.clients.judge.features import Features

FITTED: dict[str, Any] = json.loads(Path(embedded.__file__).with_name(embedded.COEFFICIENTS).read_text("utf-8"))
WORDS = embedded.LogisticModel(-2.0, {"coverage": 4.0})
"""A coverage of 0.5 is a probability of 0.5."""


def covering(share: float) -> Features:
    return Features(
        same_language=True,
        similarity=None,
        above=None,
        coverage=share,
        best_sentence=0,
        pairs=0,
        names=0,
        title=0,
    )


@pytest.mark.parametrize(("probability", "score"), SCALE.items())
def test_a_score_is_made_of_a_probability(probability: float, score: float) -> None:
    place = covering((math.log(probability / (1 - probability)) + 2) / 4)
    assert WORDS.probability(place) == pytest.approx(probability)
    assert scored("words_alone", WORDS).probability(place) == pytest.approx(score, abs=1e-3)


@given(some.floats(0, 1), some.floats(0, 1))
def test_scores_keep_the_order_of_probabilities(one: float, other: float) -> None:
    less, more = sorted((one, other))
    model = scored("words_alone", WORDS)
    assert model.probability(covering(less)) <= model.probability(covering(more))


def test_across_languages_the_probability_is_the_score() -> None:
    assert scored("cross_language", WORDS) == WORDS


def test_what_was_shipped_ranks_and_is_calibrated_as_promised() -> None:
    same = FITTED["metrics"]["same_language"]
    for name, floor in (("a_singlehop", 0.93), ("b_multihop", 0.80), ("d_fr_ru", 0.90)):
        assert same["auc"][name] >= floor
    assert same["probability"]["ece"] <= 0.03


def test_what_was_shipped_was_fitted_on_this_data() -> None:
    if not BESIDE.is_dir():
        pytest.skip(f"no evaluation sets in {BESIDE}")
    assert FITTED["data"]["fingerprint"] == fingerprint(BESIDE)
