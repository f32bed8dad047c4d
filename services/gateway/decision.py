"""What the gateway decides: whether an entry is a question, and which job it becomes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from shared.contracts import Ask, Budget, Header, Principal, Question, Rewrite
from shared.errors import InvalidJob
from shared.runtime.delivery import ENTRY_ID, Delivery, check_size, explain, parse

_JSON_FIELDS = ("history", "filters")


def read_ask(delivery: Delivery, max_bytes: int) -> Ask:
    """The question in an entry of the gateway's stream, in either form of the contract.

    One field `data` with JSON, or one field per property (numbers as digits, `history` and `filters` as JSON).
    Raises InvalidJob, which names the field at fault and repeats no values.
    """
    check_size(delivery, max_bytes)
    if not delivery.fields:
        raise InvalidJob("the entry has no fields; send question, or data with JSON")
    if b"data" in delivery.fields:
        if len(delivery.fields) > 1:
            raise InvalidJob("send either data with JSON or single fields, not both")
        ask = parse(Ask, delivery.fields[b"data"])
    else:
        ask = _from_fields(_as_text(delivery.fields))
    if ask.entry_id:
        raise InvalidJob("entry_id: Extra inputs are not permitted")
    if not ask.question.strip():  # pydantic strips less than Python: U+001C to U+001F are blank, too
        raise InvalidJob("question: must not be empty")
    if ask.job_id is not None and ENTRY_ID.fullmatch(ask.job_id):
        raise InvalidJob("job_id: digits-digits is how jobs without an id of their own are named; choose another")
    return ask.model_copy(update={"entry_id": delivery.entry_id, "job_id": ask.job_id or delivery.entry_id})


def _as_text(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    try:
        return {name.decode("utf-8"): value.decode("utf-8") for name, value in fields.items()}
    except UnicodeDecodeError as error:
        raise InvalidJob("the fields must be UTF-8 text") from error


def _from_fields(fields: Mapping[str, str]) -> Ask:
    try:
        # model_validate_strings turns "8" into 8 and leaves text alone; nested values come as JSON.
        nested = {name: fields[name] for name in _JSON_FIELDS if name in fields}
        flat = {name: value for name, value in fields.items() if name not in nested}
        ask = Ask.model_validate_strings(flat)
        return ask.model_copy(update=_nested(nested))
    except ValidationError as error:
        raise InvalidJob(explain(error)) from error


def _nested(fields: Mapping[str, str]) -> dict[str, Any]:
    if not fields:
        return {}
    document = "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + ',"question":"?"}'
    found = Question.model_validate_json(document)
    return {name: getattr(found, name) for name in fields}


def admission(ask: Ask, principal: Principal, *, submitted_at: float, budget: Budget) -> Rewrite:
    """The first command of the job. The deadline counts from submission, by the clock of the Redis server."""
    assert ask.job_id is not None
    asked = Question(**{name: getattr(ask, name) for name in Question.model_fields})
    header = Header(
        job_id=ask.job_id,
        entry_id=ask.entry_id,
        principal=principal,
        submitted_at=submitted_at,
        deadline=submitted_at + ask.deadline_s,
        budget=budget,
    )
    return Rewrite(header=header, asked=asked)
