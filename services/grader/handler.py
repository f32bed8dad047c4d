"""cairn:grader -> grade -> cairn:generator or cairn:websearch"""

from __future__ import annotations

from services.grader.decision import GradingPolicy, admitted, affordable_calls, judged_question, route
from shared.clients.judge import Judge
from shared.contracts import Generate, Grade, SearchWeb
from shared.runtime.metrics import VERDICTS


async def grade(msg: Grade, *, judge: Judge, policy: GradingPolicy) -> Generate | SearchWeb:
    """Judge the passages, all at once, and send the job on with what they are worth."""
    msg = admitted(msg)
    grading = await judge.grade_all(
        judged_question(msg),
        msg.header.language,
        msg.passages,
        deadline=msg.header.deadline,
        max_calls=affordable_calls(msg.header),
    )
    command = route(msg, grading, policy)
    VERDICTS.labels(command.verdict).inc()
    judged_by = {"judge": f"{judge.name}@{judge.version}"}
    return command.model_copy(update={"header": command.header.updated(versions=judged_by)})
