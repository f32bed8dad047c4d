"""How much longer grading k passages takes than one: `python -m bench.fanout`.

The judge is a mock of 200 ms in a process of its own. With concurrency c, k passages should take about ceil(k / c)
calls' time. Medians of 20.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvloop

from services.grader import prompts
from shared.clients.judge import Judge, open_judge
from shared.contracts import Passage
from shared.settings import JudgeSettings, LlmSettings

QUESTION = "How long do I have to return a tent?"


@contextmanager
def mock_process(latency_ms: float, *, script: str = "") -> Iterator[str]:
    """The base URL of a mock chat endpoint in its own process; `script` (MODULE:NAME) says what it answers."""
    command = [sys.executable, "-m", "tests.support.mock_openai", "--port", "0", "--latency-ms", str(latency_ms)]
    command += ["--script", script] if script else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


async def seconds(judge: Judge, k: int, times: int) -> list[float]:
    """What grading `k` passages took, each time."""
    passages = [
        Passage(passage_id=f"p{n}", document_id="d", title="Returns", uri="u", text=f"Passage {n}. " + "Tents. " * 150)
        for n in range(k)
    ]
    await judge.grade_all(QUESTION, "en", passages, deadline=time.time() + 60)  # opens the connections
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        grading = await judge.grade_all(QUESTION, "en", passages, deadline=time.time() + 60)
        taken.append(time.perf_counter() - started)
        assert all(grade.score is not None for grade in grading.grades), grading.degraded
    return taken


async def ratios(
    base_url: str,
    concurrency: int,
    sizes: tuple[int, ...],
    times: int,
    typical: Callable[[list[float]], float] = statistics.median,
) -> tuple[float, dict[int, float]]:
    """Seconds of one call, and for each k how many times as long k passages took."""
    settings = JudgeSettings(base_url=base_url, model="mock", concurrency=concurrency, _env_file=None)
    judge = open_judge(settings, LlmSettings(_env_file=None), None, prompts=prompts)
    try:
        one = typical(await seconds(judge, 1, times))
        return one, {k: typical(await seconds(judge, k, times)) / one for k in sizes}
    finally:
        await judge.aclose()


async def run(times: int, latency_ms: float) -> None:
    with mock_process(latency_ms) as base_url:
        for concurrency in (10, 5):
            one, found = await ratios(base_url, concurrency, (5, 10, 20), times)
            print(f"concurrency {concurrency}: one call {one * 1000:.0f} ms")
            for k, ratio in found.items():
                print(f"  k = {k:2}: {ratio:.2f} x one call (ideal {math.ceil(k / concurrency)})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--latency-ms", type=float, default=200)
    chosen = parser.parse_args()
    uvloop.run(run(chosen.times, chosen.latency_ms))


if __name__ == "__main__":
    main()
