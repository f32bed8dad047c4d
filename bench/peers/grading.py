"""Cairn's grading beside LangGraph's and LlamaIndex's corrective RAG, and beside a bare asyncio.gather.

    python -m venv PEERS && PEERS/bin/pip install -r bench/peers/requirements.txt
    .venv/bin/python -m bench.peers.grading PEERS/bin/python [--rounds 3]

PEERS is a directory outside the repository. One mock judge of 200 ms, in a process of its own, grades the same passages
of the same questions for everybody; every side runs in a process of its own, the sides in turn. Cairn and the bare one
may have 16 calls in flight. The web is a stub that counts. Of a question's time only the grading and what decides on
the web is taken: no side rewrites the query or writes an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import importlib
import json
import statistics
import subprocess
import sys
from typing import Final

from bench.peers.asked import AT_ONCE, PASSAGES, QUESTIONS, Measured, measured

SIDES: Final = {
    "bare": "httpx + asyncio.gather",
    "cairn": "Cairn, in process",
    "runtime": "Cairn, a worker on Redis",
    "langgraph": "LangGraph's CRAG graph",
    "llamaindex": "LlamaIndex's workflow",
}
PEERS: Final = ("langgraph", "llamaindex")


async def measure(side: str, base_url: str) -> None:
    """One pass of one side, printed as JSON: what each process of the comparison does."""
    async with importlib.import_module(f"bench.peers.grading_{side}").opened(base_url) as grade:
        print(json.dumps(dataclasses.asdict(await measured(grade, base_url))))


def passed(python: str, side: str, base_url: str) -> Measured:
    command = [python, "-m", "bench.peers.grading", "--side", side, "--judge", base_url, python]
    return Measured(**json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))


def compare(peers: str, rounds: int, latency_ms: float) -> None:
    mock_process = importlib.import_module("bench.fanout").mock_process  # Cairn's own, which the peers lack
    found: dict[str, list[Measured]] = {side: [] for side in SIDES}
    with mock_process(latency_ms, script="bench.peers.grading_judge:answer") as base_url:
        for _ in range(rounds):
            for side, runs in found.items():
                runs.append(passed(peers if side in PEERS else sys.executable, side, base_url))
    print(f"{QUESTIONS} questions, {PASSAGES} passages each, judge of {latency_ms:g} ms, medians of {rounds} rounds")
    print(f"{'':26} {'ms/question':>11} {'p95':>6} {'x bare':>6} {f'jobs/s ({AT_ONCE})':>10} {'calls':>5} {'web':>5}")
    bare = _median_ms(found["bare"])
    for side, runs in found.items():
        every = sorted(seconds for run in runs for seconds in run.seconds)
        print(
            f"{SIDES[side]:26} {_median_ms(runs):11.0f} {every[int(len(every) * 0.95)] * 1000:6.0f} "
            f"{_median_ms(runs) / bare:6.2f} {statistics.median(run.jobs_per_s for run in runs):10.2f} "
            f"{runs[0].calls:5.1f} {runs[0].searches:5.2f}"
        )


def _median_ms(runs: list[Measured]) -> float:
    return statistics.median(seconds for run in runs for seconds in run.seconds) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", help="the Python of the peers' environment")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency-ms", type=float, default=200)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--judge", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.side:
        asyncio.run(measure(chosen.side, chosen.judge))
    else:
        compare(chosen.peers, chosen.rounds, chosen.latency_ms)


if __name__ == "__main__":
    main()
