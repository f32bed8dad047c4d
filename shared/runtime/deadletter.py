"""What is kept of a message that was given up, and what can still be read in one that can't be read."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from pydantic import TypeAdapter, ValidationError

from shared.contracts import Command, Contract, JobId
from shared.runtime.delivery import ENTRY_ID, Delivery

MAX_BYTES = 1_048_576
"""Kept of a message's fields; a longer one is cut, marked, and can't be sent again."""
MAX_FIELDS = 20

_SECRET = re.compile(r'("token"\s*:\s*")(?:[^"\\]|\\.)*')
_JOB_ID: TypeAdapter[str] = TypeAdapter(JobId)


def dead_letter(delivery: Delivery, *, stage: str, worker: str, job_id: str | None, error: str, reason: str) -> str:
    """The letter as JSON. Tokens are taken out."""
    room = MAX_BYTES
    fields: dict[str, str] = {}
    for name, value in list(delivery.fields.items())[:MAX_FIELDS]:
        fields[_text(name[:200])] = (
            "[removed]" if name == b"token" else _SECRET.sub(r"\1[removed]", _text(value[:room]))
        )
        room -= min(room, len(value))
    return json.dumps(
        {
            "stage": stage,
            "inbox": delivery.inbox,
            "entry_id": delivery.entry_id,
            "job_id": job_id,
            "reason": reason,
            "error": error,
            "deliveries": delivery.deliveries,
            "worker": worker,
            "failed_at": round(time.time(), 3),
            "whole": delivery.size_bytes <= MAX_BYTES and len(delivery.fields) <= MAX_FIELDS,
            "fields": fields,
        },
        ensure_ascii=False,
    )


def job_of(delivery: Delivery, message: Contract | None) -> str | None:
    """The job a delivery belongs to, also where its message can't be read as a whole."""
    if isinstance(message, Command):
        return message.header.job_id
    found = _loose_json(delivery).get("header")
    return _usable(found.get("job_id")) if isinstance(found, dict) else None


def wanted_job_id(delivery: Delivery) -> str | None:
    """The id an unreadable question asked for, if it is a usable one."""
    raw = delivery.fields.get(b"job_id")
    found = _usable(raw.decode("utf-8", "replace") if raw is not None else _loose_json(delivery).get("job_id"))
    return None if found is None or ENTRY_ID.fullmatch(found) else found


def _usable(job_id: object) -> str | None:
    try:
        return _JOB_ID.validate_python(job_id)
    except ValidationError:
        return None


def _loose_json(delivery: Delivery) -> dict[str, Any]:
    try:
        found = json.loads(delivery.fields.get(b"data", b""))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
