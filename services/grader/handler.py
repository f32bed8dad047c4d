"""cairn:grader -> grade -> cairn:generator, cairn:websearch or, for another hop, cairn:rewriter"""

from __future__ import annotations

from services.grader.decision import (
    GradingPolicy,
    admitted,
    affordable_calls,
    fresh_evidence,
    judged_question,
    route,
    settled,
    with_strips,
)
from services.grader.keeping import Keeper
from services.grader.refining import Refiner
from shared.clients.judge import Judge
from shared.contracts import Generate, Grade, Rewrite, SearchWeb
from shared.runtime.metrics import VERDICTS


async def grade(
    msg: Grade,
    *,
    judge: Judge,
    policy: GradingPolicy,
    refiner: Refiner | None = None,
    keeper: Keeper | None = None,
) -> Generate | SearchWeb | Rewrite:
    """Judge the passages, all at once, and send the job on with what they are worth.

    Without a refiner, the strips worth reading are chosen by words; without a keeper, no web passage is kept.
    """
    msg = admitted(msg)
    # On a later hop what is known was not enough, whatever its grades are.
    earlier = [] if msg.header.hop else [each.grade for each in msg.evidence]
    grading = await judge.grade_all(
        judged_question(msg),
        msg.header.language,
        msg.passages,
        deadline=msg.header.deadline,
        max_calls=affordable_calls(msg.header),
        enough=lambda grades: settled([*earlier, *grades], policy),
    )
    command = route(msg, grading, policy)
    if refiner is not None and (fresh := fresh_evidence(msg, command)):
        refined = await refiner.refine(
            judged_question(msg),
            msg.header.language,
            fresh,
            deadline=msg.header.deadline,
            max_calls=affordable_calls(command.header),
        )
        command = with_strips(command, fresh, refined)
    if keeper is not None:
        await keeper.keep(fresh_evidence(msg, command))
    VERDICTS.labels(command.verdict).inc()
    judged_by = {"judge": f"{judge.name}@{judge.version}"}
    return command.model_copy(update={"header": command.header.updated(versions=judged_by)})
