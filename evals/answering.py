"""What the answers are worth: right, silent where nothing is known, true to their sources, and at what cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from evals.figures import Figure, PerQuery, by_group, mean, quantile, share
from evals.running import Run
from evals.sheet import StageSheet
from shared.contracts import Answered, Citation
from shared.language import fold

_WORD: Final = re.compile(r"[^\W_]+")


def answer_sheet(runs: Sequence[Run]) -> StageSheet:
    """Figures over all questions that were answered, or not; `cost` is models called and time, of one question."""
    ended = [run for run in runs if run.outcome is not None]
    figures = by_group(ended, lambda run: run.asked.groups, _figures)
    times = [sum(run.seconds.values()) for run in ended]
    outcomes = [outcome_of(run) for run in ended]
    figures["cost"] = {
        "calls": mean([float(_calls(outcome)) for outcome in outcomes]),
        "tokens": mean([float(_tokens(outcome)) for outcome in outcomes]),
        "s p50": quantile(times, 0.5),
        "s p95": quantile(times, 0.95),
    }
    facts = {
        "statuses": {
            "answerable": dict(Counter(outcome_of(run).status for run in ended if run.asked.answerable)),
            "unanswerable": dict(Counter(outcome_of(run).status for run in ended if not run.asked.answerable)),
        },
        "writers": dict(Counter(outcome.writer for outcome in outcomes if outcome.writer)),
        "usage": _usage(outcomes),
        "seconds": [round(each, 4) for each in times],
        "degraded": dict(Counter(reason for outcome in outcomes for reason in outcome.degraded).most_common()),
    }
    return StageSheet(figures=figures, per_query=_per_query(ended), facts=facts)


def contains_answer(answer: str, wanted: Sequence[str]) -> bool:
    """Whether one of the wanted answers stands in the answer: word for word, whatever case, accents and signs."""
    text = _plain(answer)
    return any(known in text for known in map(_plain, wanted) if known.strip())


def is_verbatim(citation: Citation, run: Run) -> bool:
    """Whether the quote stands word for word in the passage that it names."""
    return any(citation.quote in each.text for each in run.passages if each.passage_id == citation.passage_id)


def cites_gold(citation: Citation, run: Run) -> bool:
    """Whether what is cited is among what is known to be relevant."""
    return any(run.asked.is_gold(each) for each in run.passages if each.passage_id == citation.passage_id)


def outcome_of(run: Run) -> Answered:
    assert run.outcome is not None
    return run.outcome


def _figures(group: Sequence[Run]) -> dict[str, Figure]:
    known = [run for run in group if run.asked.answerable and run.asked.answers]
    right = sum(_is_right(run) for run in known)
    silent = [run for run in group if outcome_of(run).status == "abstained"]
    unanswerable = [run for run in group if not run.asked.answerable]
    rightly_silent = sum(not run.asked.answerable for run in silent)
    cited = [(citation, run) for run in group for citation in outcome_of(run).citations]
    to_known = [(citation, run) for citation, run in cited if run.asked.gold]
    return {
        "contains": share(right, len(known)),
        "when answered": share(right, sum(outcome_of(run).status == "answered" for run in known)),
        "abstain P": share(rightly_silent, len(silent)),
        "abstain R": share(rightly_silent, len(unanswerable)),
        "gold cited": share(sum(cites_gold(*each) for each in to_known), len(to_known)),
        "verbatim": share(sum(is_verbatim(*each) for each in cited), len(cited)),
    }


def _per_query(ended: Sequence[Run]) -> PerQuery:
    values: PerQuery = {}
    for run in ended:
        silent = outcome_of(run).status == "abstained"
        mine = {"rightly silent or not": float(silent != run.asked.answerable)}
        if run.asked.answerable and run.asked.answers:
            mine["contains"] = float(_is_right(run))
        citations = outcome_of(run).citations
        if citations and run.asked.gold:
            mine["gold cited"] = sum(cites_gold(each, run) for each in citations) / len(citations)
        values[run.asked.id] = mine
    return values


def _is_right(run: Run) -> bool:
    outcome, asked = outcome_of(run), run.asked
    return outcome.status == "answered" and contains_answer(outcome.answer, asked.answers)


def _usage(outcomes: Sequence[Answered]) -> dict[str, dict[str, int]]:
    """Calls and tokens of all questions together, by stage."""
    total: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        for spent in outcome.usage:
            facts = {"calls": spent.calls, "prompt": spent.prompt_tokens, "completion": spent.completion_tokens}
            total.setdefault(spent.stage, Counter()).update(facts)
    return {stage: dict(spent) for stage, spent in total.items()}


def _calls(outcome: Answered) -> int:
    return sum(spent.calls for spent in outcome.usage)


def _tokens(outcome: Answered) -> int:
    return sum(spent.prompt_tokens + spent.completion_tokens for spent in outcome.usage)


def _plain(text: str) -> str:
    """Folded words between single blanks, with one at either end: a number must not be found in a longer one."""
    return f" {' '.join(_WORD.findall(fold(text)))} "
