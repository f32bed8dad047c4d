"""Fit the embedded judge and write its coefficients: `python -m evals.fit_judge [DATA] [--write]`.

DATA holds the evaluation sets (default: ../shared/data; see judge_data.py). Every figure is cross-validated by the
group of the source question: no question is judged by a model that saw it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from evals.cascade import MAX_WRONG, cascade_figures, choose
from evals.deciding import balanced_accuracy
from evals.grading import brier, calibration_error, reliability
from evals.judge_data import SETS, Example, Shown, examples_of, fingerprint, read_set, shown_to
from shared.clients.judge import embedded

EMBEDDER: Final = "multilingual-e5-small"
FEATURES: Final = {
    # Not coverage: beside similarity its weight turns negative, and a judge that dislikes shared words is a trap.
    "same_language": ("similarity", "best_sentence", "pairs"),
    "cross_language": ("above",),
    "words_alone": ("coverage", "best_sentence", "pairs", "names", "title"),
}
SCALE: Final = {0.5: 0.7, 0.2: 0.3}
"""Which scores two probabilities become, so that 0.7 and 0.3 mean the same whoever judges: what helps rather than not,
and what hardly does. Balanced accuracy of "correct" hardly moves where .7 is put at a probability of .4 to .5; at .5
the fewest unanswerable questions are called answered. The order stays."""
CROSS_SMOOTHING: Final = 0.15
"""Labels of the cross-language fit are 0.15 and 0.85: with 27 examples it had better lean to ambiguous."""
FOLDS: Final = 5
UPPER: Final = 0.7
LOWER: Final = 0.3


def fit(kind: str, examples: Sequence[Example]) -> embedded.LogisticModel:
    """One model on all these examples."""
    names = FEATURES[kind]
    matrix = np.array([[getattr(each.features, name) for name in names] for each in examples])
    labels = np.array([each.label for each in examples])
    center, spread = matrix.mean(axis=0), matrix.std(axis=0)
    scaled, weights = (matrix - center) / spread, np.ones(len(labels))
    if kind == "cross_language":  # every example counts for both labels, and both labels count the same
        balanced = np.where(labels == 1, (labels == 0).sum() / (labels == 1).sum(), 1.0)
        weights = np.concatenate([balanced * (1 - CROSS_SMOOTHING), balanced * CROSS_SMOOTHING])
        scaled, labels = np.concatenate([scaled, scaled]), np.concatenate([labels, 1 - labels])
    fitted = LogisticRegression().fit(scaled, labels, sample_weight=weights)
    raw = fitted.coef_[0] / spread
    intercept = float(fitted.intercept_[0] - raw @ center)
    return embedded.LogisticModel(intercept, dict(zip(names, map(float, raw), strict=True)))


def scored(kind: str, model: embedded.LogisticModel) -> embedded.LogisticModel:
    """The model whose probability is the score (`SCALE`). That across languages is not calibrated, and stays."""
    (one, its), (other, others) = ((_logit(known), _logit(score)) for known, score in SCALE.items())
    slope = 1.0 if kind == "cross_language" else (its - others) / (one - other)
    shift = 0.0 if kind == "cross_language" else its - slope * one
    weights = {name: round(weight * slope, 4) for name, weight in model.weights.items()}
    return embedded.LogisticModel(round(model.intercept * slope + shift, 4), weights)


def _logit(probability: float) -> float:
    return math.log(probability / (1 - probability))


@dataclass(frozen=True)
class HeldOut:
    """Models of one kind for judging examples that they did not see."""

    kind: str
    folds: Mapping[str, int]
    """By group."""
    models: Sequence[embedded.LogisticModel]
    """By fold, each fitted on the others."""

    @classmethod
    def of(cls, kind: str, examples: Sequence[Example], folds: Mapping[str, int]) -> Self:
        mine = of_kind(kind, examples)
        models = [fit(kind, [each for each in mine if folds[each.group] != fold]) for fold in range(FOLDS)]
        return cls(kind, folds, models)

    def scored(self) -> HeldOut:
        return HeldOut(self.kind, self.folds, [scored(self.kind, model) for model in self.models])

    def judge(self, example: Example) -> float:
        return self.models[self.folds[example.group]].probability(example.features)


def of_kind(kind: str, examples: Sequence[Example]) -> list[Example]:
    return [each for each in examples if each.features.same_language == (kind != "cross_language")]


def measure(examples: Sequence[Example], judge: HeldOut) -> dict[str, Any]:
    """AUC by set; Brier score, calibration error and reliability of the probability and of the score made of it."""
    mine = of_kind(judge.kind, examples)
    labels = [bool(each.label) for each in mine]
    figures: dict[str, Any] = {"examples": len(mine), "relevant": sum(labels), "auc": {}}
    for what, model in (("probability", judge), ("score", judge.scored())):
        values = [model.judge(each) for each in mine]
        figures[what] = _calibration(values, labels)
        for name in sorted({each.name for each in mine}):
            places = [n for n, each in enumerate(mine) if each.name == name]
            its, truth = [values[n] for n in places], [labels[n] for n in places]
            figures["auc"][name] = float(roc_auc_score(truth, its))
            figures[what][name] = _calibration(its, truth)
        bins = reliability(values, labels)
        figures[what]["reliability"] = [f"{each['n']}: {each['score']:.2f} {each['relevant']:.2f}" for each in bins]
    return figures


def _calibration(values: Sequence[float], labels: Sequence[bool]) -> dict[str, Any]:
    return {"brier": brier(values, labels), "ece": calibration_error(reliability(values, labels))}


def decisions(lists: Sequence[Shown], same: HeldOut, cross: HeldOut) -> dict[str, Any]:
    """Shares of what was shown that are called correct and incorrect, by kind of question, and balanced accuracy."""
    best = [max((cross, same)[each.features.same_language].judge(each) for each in one.examples) for one in lists]
    by_kind, by_set = defaultdict(list), defaultdict(list)
    for one, score in zip(lists, best, strict=True):
        by_kind[one.kind].append(score)
        by_set[one.name].append((score >= UPPER, one.is_good))
    return {
        "balanced": {name: balanced_accuracy(*zip(*by_set[name], strict=True)) for name in SETS},
        **{
            kind: {
                "questions": len(scores),
                "correct": float(np.mean([score >= UPPER for score in scores])),
                "incorrect": float(np.mean([score < LOWER for score in scores])),
            }
            for kind, scores in sorted(by_kind.items())
        },
    }


def cascade(lists: Sequence[Shown], judge: HeldOut) -> dict[str, Any]:
    """Bounds for a loss of `MAX_WRONG` of the passages shown, and what bounds chosen on the other folds do by set."""
    shown = of_kind("same_language", [each for one in lists for each in one.examples])
    scores, labels = [judge.judge(each) for each in shown], [bool(each.label) for each in shown]
    figures: dict[str, Any] = {"bounds": choose(scores, labels), "max_wrong": MAX_WRONG}
    for name in SETS:
        parts = []
        for fold in range(FOLDS):
            others = [n for n, each in enumerate(shown) if judge.folds[each.group] != fold]
            mine = [n for n, each in enumerate(shown) if judge.folds[each.group] == fold and each.name == name]
            bounds = choose([scores[n] for n in others], [labels[n] for n in others])
            its = cascade_figures([scores[n] for n in mine], [labels[n] for n in mine], bounds)
            parts.append((len(mine), its["asked"] or 0.0, its["wrong"] or 0.0))
        counts, asked, wrong = zip(*parts, strict=True)
        figures[name] = {"asked": np.average(asked, weights=counts), "wrong": np.average(wrong, weights=counts)}
    return figures


def _rounded(figures: Any) -> Any:
    """All numbers in it to four places."""
    if isinstance(figures, Mapping):
        return {name: _rounded(each) for name, each in figures.items()}
    if isinstance(figures, list | tuple):
        return [_rounded(each) for each in figures]
    return round(float(figures), 4) if isinstance(figures, float) else figures


BESIDE = Path(__file__).parents[2] / "shared" / "data"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("data", nargs="?", type=Path, default=BESIDE)
    arguments.add_argument("--write", action="store_true", help="replace the coefficients in the package")
    chosen = arguments.parse_args()
    sets = [read_set(chosen.data, name) for name in SETS]
    examples = [example for one in sets for example in examples_of(one)]
    lists = [shown for one in sets for shown in shown_to(one)]
    groups = {each.group for each in examples} | {each.group for one in lists for each in one.examples}
    folds = {group: n % FOLDS for n, group in enumerate(sorted(groups))}
    judges = {kind: HeldOut.of(kind, examples, folds) for kind in FEATURES}
    models = {kind: scored(kind, fit(kind, of_kind(kind, examples))) for kind in FEATURES}
    metrics = {kind: measure(examples, judge) for kind, judge in judges.items()}
    cross = judges["cross_language"]
    for kind in ("same_language", "words_alone"):
        metrics[kind]["decisions"] = decisions(lists, judges[kind].scored(), cross)
        metrics[kind]["balanced_by_probability"] = decisions(lists, judges[kind], cross)["balanced"]
    metrics["cascade"] = cascade(lists, judges["same_language"].scored())
    written = {kind: {"intercept": each.intercept, "weights": dict(each.weights)} for kind, each in models.items()}
    version = hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()[:8]
    fitted = {
        "version": f"embedded-{version}",
        "embedder": EMBEDDER,
        "models": written,
        "data": {"sets": list(SETS), "fingerprint": fingerprint(chosen.data), "scale": [*SCALE.items()]},
        "metrics": _rounded(metrics),
    }
    text = json.dumps(fitted, indent=2) + "\n"
    print(text)
    if chosen.write:
        (Path(embedded.__file__).parent / embedded.COEFFICIENTS).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
