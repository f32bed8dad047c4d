"""Do questions of two hops reach both of their passages? With a planner that knows from the set what is missing.

    python -m evals.multihop ../shared/data/b_multihop --vectors ../shared/data/vectors/b_multihop.npz

Rewriter, retriever and grader are the real ones with their default settings. The planner stands for the chat model: on
a later hop it names the title of a relevant passage that the evidence lacks. That says what search, judge and the
keeping of evidence do with a good plan, and nothing about models that plan. Shares of the answerable questions with two
relevant passages:

    found, one hop    both were among the passages of the first search
    one hop           both were kept by the judge
    two hops          the same with a second hop, made where one is missing
    guarded           of the questions whose planner repeats itself, those that the loop guard ended after one search
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evals.dataset import EvalQuestion
from evals.figures import share
from evals.loading import load
from evals.pipeline import Pipeline, in_time, open_pipeline
from services.gateway.decision import admission
from services.rewriter.decision import NOTHING_NEW
from services.rewriter.handler import rewrite
from services.rewriter.settings import RewritingPolicy
from shared.clients.chat import Completion, Message, ReplySchema
from shared.contracts import Ask, Generate, Rewrite
from shared.settings import HomeSettings

WANTED = 0.8
"""Of the two-hop questions, the share that must reach both passages."""
_STUBBORN = 20
"""Questions that are asked with a planner that repeats itself."""
_POLICY = RewritingPolicy(small_talk=False, clarify=False)


class Planner:
    """A chat model that asks for what it is told to."""

    name = "scripted planner"

    def __init__(self, queries: Sequence[str]) -> None:
        self.queries = queries

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        schema: ReplySchema | None = None,
        timeout_s: float,
        needed: Callable[[], bool] | None = None,
        said: Callable[[str], None] | None = None,
    ) -> Completion:
        reply = json.dumps({"intent": "factual", "queries": self.queries})
        return Completion(reply, "stop", 0, 0, estimated=True)

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Reached:
    """What became of one question; `found` and `kept` tell for each hop whether both passages were there."""

    found: tuple[bool, ...]
    kept: tuple[bool, ...]
    guarded: bool


async def follow(asked: EvalQuestion, pipeline: Pipeline, *, stubborn: bool, titles: dict[str, str]) -> Reached:
    """The question through at most two hops, as a generator would ask for the second; the stubborn planner repeats."""
    ask = Ask(question=asked.question, job_id="eval", entry_id="0-0", web="off", max_hops=2)
    command = admission(ask, asked.principal, submitted_at=time.time(), budget=pipeline.budget)
    gold = {each.document_id for each in asked.gold}
    found: list[bool] = []
    kept: list[bool] = []
    seen: set[str] = set()
    planner = Planner([asked.question])
    while True:
        planned = await rewrite(in_time(command), chat=planner, policy=_POLICY)
        if isinstance(planned, Generate):
            return Reached(tuple(found), tuple(kept), planned.header.trail[-1].reason == NOTHING_NEW)
        searched = await pipeline.handlers.retrieve(in_time(planned))
        decided = await pipeline.handlers.grade(searched)
        seen |= {each.document_id for each in searched.passages}
        missing = sorted(gold - {each.passage.document_id for each in decided.evidence})
        found.append(gold <= seen)
        kept.append(not missing)
        hop = searched.header.hop + 1
        if (not missing and not stubborn) or hop == ask.max_hops:
            return Reached(tuple(found), tuple(kept), guarded=False)
        planner.queries = [f"{asked.question.lower()} ?" if stubborn else titles[missing[0]]]
        command = (
            decided
            if isinstance(decided, Rewrite)
            else Rewrite(
                header=decided.header.updated(hop=hop),
                asked=decided.asked,
                verdict=decided.verdict,
                evidence=decided.evidence,
            )
        )


async def measure(folder: Path, vectors: Path | None, limit: int | None) -> int:
    """Print the figures; 0 if they are good enough."""
    dataset = load(folder)
    asked = [each for each in dataset.questions if each.answerable and len(each.gold) == 2][:limit]
    titles = {name: known.document.title for name, known in dataset.corpus.documents.items()}
    data_dir = HomeSettings().data_dir
    async with open_pipeline(dataset.corpus, data_dir, top_k=8, vectors=vectors, progress=_progress) as pipeline:
        led = [await follow(each, pipeline, stubborn=False, titles=titles) for each in asked]
        stubborn = [await follow(each, pipeline, stubborn=True, titles=titles) for each in asked[:_STUBBORN]]
    figures = {
        "found, one hop": share(sum(each.found[0] for each in led), len(led)),
        "one hop": share(sum(each.kept[0] for each in led), len(led)),
        "found, two hops": share(sum(each.found[-1] for each in led), len(led)),
        "two hops": share(sum(each.kept[-1] for each in led), len(led)),
        "guarded": share(sum(each.guarded and len(each.kept) == 1 for each in stubborn), len(stubborn)),
    }
    for name, figure in figures.items():
        print(f"{name:16} {figure:.3f}")
    print(f"{len(led)} questions, {sum(len(each.kept) == 2 for each in led)} with a second hop")
    return 0 if (figures["two hops"] or 0) >= WANTED and figures["guarded"] == 1 else 1


def _progress(doing: str, done: int, total: int) -> None:
    print(f"\r{doing} {done}/{total}", end="" if done < total else "\n", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Both passages of two-hop questions, with a scripted planner.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vectors", type=Path, help="vectors of the corpus, to save the time of embedding it")
    parser.add_argument("--limit", type=int)
    told = parser.parse_args()
    return asyncio.run(measure(told.folder, told.vectors, told.limit))


if __name__ == "__main__":
    sys.exit(main())
