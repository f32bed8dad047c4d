"""What the answers are worth: right, silent where nothing is known, true to their sources, and at what cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from evals.claims import counted_words, language_of, passages_of, plain, said, support
from evals.figures import Figure, PerQuery, by_group, mean, quantile, share
from evals.running import Run
from evals.sheet import StageSheet
from shared.contracts import Answered, Citation


def answer_sheet(runs: Sequence[Run]) -> StageSheet:
    """Figures over all questions that were answered, or not; `cost` is what one question takes, all stages together."""
    ended = [run for run in runs if run.outcome is not None]
    figures = by_group(ended, lambda run: run.asked.groups, _figures)
    times = [sum(run.seconds.values()) for run in ended]
    outcomes = [outcome_of(run) for run in ended]
    costs = [[spent.cost for spent in outcome.usage if spent.cost is not None] for outcome in outcomes]
    figures["cost"] = {
        "hops": mean([outcome.hops for outcome in outcomes]),
        "calls": mean([_calls(outcome) for outcome in outcomes]),
        "tokens": mean([_tokens(outcome) for outcome in outcomes]),
        "price": mean([sum(each) for each in costs]) if any(costs) else None,
        "s p50": quantile(times, 0.5),
        "s p95": quantile(times, 0.95),
    }
    facts = {
        "statuses": {
            "answerable": dict(Counter(outcome_of(run).status for run in ended if run.asked.answerable)),
            "unanswerable": dict(Counter(outcome_of(run).status for run in ended if not run.asked.answerable)),
        },
        "writers": dict(Counter(outcome.writer for outcome in outcomes if outcome.writer)),
        "versions": dict(Counter(f"{name} {used}" for each in outcomes for name, used in each.versions.items())),
        "usage": _usage(outcomes),
        "seconds": [round(each, 4) for each in times],
        "degraded": dict(Counter(reason for outcome in outcomes for reason in outcome.degraded).most_common()),
    }
    return StageSheet(figures=figures, per_query=_per_query(ended), facts=facts)


def contains_answer(answer: str, wanted: Sequence[str]) -> bool:
    """Whether one of the wanted answers stands in the answer: word for word, whatever case, accents and signs."""
    text = plain(answer)
    return any(known in text for known in map(plain, wanted) if known.strip())


def overlap_f1(answer: str, wanted: Sequence[str]) -> float:
    """F1 of the words in common with the wanted answer that fits best, as SQuAD counts; 1 is an exact match."""
    given = Counter(counted_words(answer))
    each = [Counter(counted_words(known)) for known in wanted]
    return max((2 * (given & known).total() / max(1, given.total() + known.total()) for known in each), default=0.0)


def is_verbatim(citation: Citation, run: Run) -> bool:
    """Whether the quote stands word for word in the passage that it names."""
    passage = passages_of(run).get(citation.passage_id)
    return passage is not None and citation.quote in passage.text


def cites_gold(citation: Citation, run: Run) -> bool:
    """Whether what is cited is among what is known to be relevant."""
    passage = passages_of(run).get(citation.passage_id)
    return passage is not None and run.asked.is_gold(passage)


def outcome_of(run: Run) -> Answered:
    assert run.outcome is not None
    return run.outcome


def _figures(group: Sequence[Run]) -> dict[str, Figure]:
    answerable = [run for run in group if run.asked.answerable]
    known = [run for run in answerable if run.asked.answers]
    right = sum(_is_right(run) for run in known)
    silent = [run for run in group if outcome_of(run).status == "abstained"]
    rightly_silent = sum(not run.asked.answerable for run in silent)
    given = [run for run in group if outcome_of(run).status == "answered"]
    overlaps = [
        overlap_f1(_said(run), run.asked.answers) for run in given if run.asked.answers and run.asked.answerable
    ]
    cited = [(citation, run) for run in group for citation in outcome_of(run).citations]
    to_known = [cites_gold(*each) for each in cited if each[1].asked.gold]
    with_gold = [any(cites_gold(each, run) for each in outcome_of(run).citations) for run in given if run.asked.gold]
    checked = [holds for run in given for holds in support(run, outcome_of(run))]
    spoken = [(run.asked.language, language) for run in group if (language := language_of(outcome_of(run)))]
    return {
        "contains": share(right, len(known)),
        "when answered": share(right, sum(outcome_of(run).status == "answered" for run in known)),
        "EM": mean([value == 1 for value in overlaps]),
        "F1": mean(overlaps),
        "answered": share(sum(run.asked.answerable for run in given), len(answerable)),
        "abstain P": share(rightly_silent, len(silent)),
        "abstain R": share(rightly_silent, len(group) - len(answerable)),
        "cite P": mean(to_known),
        "cite R": mean(with_gold),
        "verbatim": mean([is_verbatim(*each) for each in cited]),
        "unsupported": share(checked.count(False), len(checked)),
        "language": mean([asked == language for asked, language in spoken]),
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
            mine["cite P"] = sum(cites_gold(each, run) for each in citations) / len(citations)
        values[run.asked.id] = mine
    return values


def _said(run: Run) -> str:
    return " ".join(said(outcome_of(run)))


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
