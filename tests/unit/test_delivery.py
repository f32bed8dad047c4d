"""What follows from a delivery that went wrong, and how a message is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.contracts import Ask, Contract, Generate, Ingest, Rewrite
from shared.errors import (
    InvalidJob,
    InvalidModelReply,
    Misconfigured,
    ModelUnavailable,
    NotAllowed,
    SearchUnavailable,
    TransientError,
)
from shared.runtime.delivery import (
    AfterFailure,
    Delivery,
    GiveUp,
    Redeliver,
    RetryHere,
    RetryPolicy,
    after_failure,
    explain,
    parse,
    read_command,
)
from tests.support.bus import header, question

POLICY = RetryPolicy(initial_s=0.2, max_s=10.0, max_deliveries=5)
INFINITE = float("inf")

TABLE = [
    # error, attempt, deliveries, seconds left -> what to do (jitter 0: half of the ceiling)
    pytest.param(ModelUnavailable("down"), 1, 1, 60.0, RetryHere(0.1), id="transient, first try"),
    pytest.param(SearchUnavailable("down"), 2, 1, 60.0, RetryHere(0.2), id="transient, second try"),
    pytest.param(TransientError("down"), 4, 1, 60.0, RetryHere(0.8), id="transient, fourth try"),
    pytest.param(TransientError("down"), 500, 1, 60.0, RetryHere(5.0), id="transient, never above the ceiling"),
    pytest.param(TransientError("down"), 3, 99, 60.0, RetryHere(0.4), id="deliveries don't bound transient retries"),
    pytest.param(TransientError("down"), 1, 1, INFINITE, RetryHere(0.1), id="transient, no deadline"),
    pytest.param(TransientError("busy", retry_after_s=7), 1, 1, 60.0, RetryHere(7), id="Retry-After is honoured"),
    pytest.param(TransientError("busy", retry_after_s=0.0), 1, 1, 60.0, RetryHere(0.1), id="backoff when it is less"),
    pytest.param(TransientError("busy", retry_after_s=61), 1, 1, 60.0, GiveUp("deadline"), id="asked to come too late"),
    pytest.param(TransientError("down"), 1, 1, 0.1, GiveUp("deadline"), id="wait ends at the deadline"),
    pytest.param(TransientError("down"), 1, 1, -3.0, GiveUp("deadline"), id="deadline has passed"),
    pytest.param(InvalidJob("question: missing"), 1, 1, 60.0, GiveUp("invalid"), id="invalid"),
    pytest.param(NotAllowed("token: expired"), 1, 1, 60.0, GiveUp("permanent"), id="not allowed"),
    pytest.param(Misconfigured("key"), 1, 1, 60.0, GiveUp("permanent"), id="misconfigured"),
    pytest.param(InvalidModelReply("riddles"), 1, 1, INFINITE, GiveUp("permanent"), id="unreadable reply"),
    pytest.param(ZeroDivisionError("oops"), 1, 1, 60.0, Redeliver(0.1), id="bug, first delivery"),
    pytest.param(KeyError("oops"), 1, 4, 60.0, Redeliver(0.8), id="bug, backoff by delivery"),
    pytest.param(KeyError("oops"), 1, 5, 60.0, GiveUp("bug"), id="bug, last delivery"),
    pytest.param(KeyError("oops"), 1, 9, INFINITE, GiveUp("bug"), id="bug, beyond the last"),
    pytest.param(TimeoutError(), 1, 1, 60.0, Redeliver(0.1), id="an untranslated error is a bug"),
]


@pytest.mark.parametrize(("error", "attempt", "deliveries", "seconds_left", "expected"), TABLE)
def test_what_follows_from_a_failure(
    error: Exception, attempt: int, deliveries: int, seconds_left: float, expected: AfterFailure
) -> None:
    found = after_failure(
        error, attempt=attempt, deliveries=deliveries, seconds_left=seconds_left, policy=POLICY, jitter=0.0
    )
    assert found == expected


policies = st.builds(
    RetryPolicy,
    initial_s=st.floats(0.001, 1.0),
    max_s=st.floats(1.0, 100.0),
    max_deliveries=st.integers(1, 20),
)
attempts = st.integers(1, 10_000)
jitters = st.floats(0.0, 1.0, exclude_max=True)


@settings(deadline=None)
@given(policy=policies, attempt=attempts, jitter=jitters)
def test_a_backoff_is_positive_and_bounded(policy: RetryPolicy, attempt: int, jitter: float) -> None:
    assert policy.initial_s / 2 <= policy.backoff_s(attempt, jitter) <= policy.max_s


@settings(deadline=None)
@given(policy=policies, attempt=attempts, jitter=jitters)
def test_a_backoff_never_shrinks_with_the_attempts(policy: RetryPolicy, attempt: int, jitter: float) -> None:
    assert policy.backoff_s(attempt, jitter) <= policy.backoff_s(attempt + 1, jitter)


@settings(deadline=None)
@given(policy=policies, attempt=attempts, one=jitters, other=jitters)
def test_jitter_spreads_a_backoff_over_its_upper_half(
    policy: RetryPolicy, attempt: int, one: float, other: float
) -> None:
    low, high = sorted((one, other))
    assert policy.backoff_s(attempt, low) <= policy.backoff_s(attempt, high) <= 2 * policy.backoff_s(attempt, 0.0)


@settings(deadline=None)
@given(
    policy=policies,
    attempt=attempts,
    jitter=jitters,
    seconds_left=st.floats(-10.0, 1_000.0),
    asked_s=st.none() | st.floats(0.0, 1_000.0),
)
def test_a_retry_always_starts_before_the_deadline(
    policy: RetryPolicy, attempt: int, jitter: float, seconds_left: float, asked_s: float | None
) -> None:
    found = after_failure(
        TransientError("down", retry_after_s=asked_s),
        attempt=attempt,
        deliveries=1,
        seconds_left=seconds_left,
        policy=policy,
        jitter=jitter,
    )
    if isinstance(found, RetryHere):
        assert (asked_s or 0.0) <= found.after_s < seconds_left
    else:
        assert found == GiveUp("deadline")


# --- reading -------------------------------------------------------------------------------------------------------


def delivery(fields: dict[bytes, bytes], inbox: str = "generator") -> Delivery:
    return Delivery(inbox, "1700000000123-4", fields)


def generate() -> Generate:
    return Generate(header=header(), asked=question(), route="factual", verdict="correct")


def test_a_command_is_read_as_it_was_written() -> None:
    command = generate()
    read = read_command(Generate, delivery({b"data": command.model_dump_json().encode()}), 100_000)
    assert read == command


def test_an_entry_knows_when_it_was_added_and_how_big_it_is() -> None:
    entry = delivery({b"data": b"12345", b"more": b"678"})
    assert entry.submitted_at == 1_700_000_000.123
    assert entry.size_bytes == len("data12345more678")


WRONG_COMMANDS = [
    pytest.param({}, "got none", id="no fields"),
    pytest.param({b"question": b"why?"}, "'question'", id="another field"),
    pytest.param({b"data": b"{}", b"extra": b"1"}, "'extra'", id="a field too many"),
    pytest.param({b"\xff\xfe": b"{}"}, "expected one field, data", id="binary name"),
    pytest.param({b"data": b""}, "Invalid JSON", id="empty"),
    pytest.param({b"data": b"\xff"}, "Invalid JSON", id="not UTF-8"),
    pytest.param({b"data": b'{"header":'}, "Invalid JSON", id="cut off"),
    pytest.param({b"data": b"null"}, "message: ", id="null"),
    pytest.param({b"data": b"{}"}, "header: Field required", id="fields missing"),
    pytest.param({b"data": b"x" * 2_000}, "CAIRN_MAX_MESSAGE_BYTES", id="too big"),
]


@pytest.mark.parametrize(("fields", "named"), WRONG_COMMANDS)
def test_an_unreadable_command_says_what_is_wrong(fields: dict[bytes, bytes], named: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        read_command(Generate, delivery(fields), 1_000)
    assert named in str(refused.value)


def test_the_size_limit_counts_names_and_admits_the_last_byte() -> None:
    raw = generate().model_dump_json().encode()
    entry = delivery({b"data": raw})
    read_command(Generate, entry, entry.size_bytes)
    with pytest.raises(InvalidJob, match="bytes"):
        read_command(Generate, entry, entry.size_bytes - 1)


def test_many_and_long_names_are_not_repeated_in_full() -> None:
    fields = {b"%03d" % number + b"n" * 500: b"" for number in range(200)}
    with pytest.raises(InvalidJob) as refused:
        read_command(Generate, delivery(fields), 1_000_000)
    assert len(str(refused.value)) < 1_000


@settings(deadline=None)
@given(fields=st.dictionaries(st.sampled_from([b"data", b"question", b"\xff"]) | st.binary(), st.binary(), max_size=4))
def test_any_bytes_are_a_command_or_refused(fields: dict[bytes, bytes]) -> None:
    with pytest.raises(InvalidJob):
        read_command(Rewrite, delivery(fields, "rewriter"), 100_000)


SECRET = "s3cr3t-Zq9"

HOLDING_SECRETS: list[tuple[type[Contract], Any]] = [
    (Ask, {"question": "why?", "token": [SECRET]}),
    (Ask, {"question": "why?", "token": {"jwt": SECRET}}),
    (Ask, {"question": "why?", "top_k": SECRET}),
    (Ask, {"question": "why?", "job_id": f"/{SECRET}"}),
    (Ask, {"question": "why?", "web": SECRET}),
    (Ask, {"question": "why?", "history": [{"role": SECRET, "content": SECRET}]}),
    (Ask, {"question": SECRET * 2_000}),
    (Ask, {"question": "why?", "filters": SECRET}),
    (Ask, SECRET),
    (Ask, [SECRET]),
    (Ingest, {"run_id": f"{SECRET}/", "document": SECRET, "passages": [{"text": SECRET}]}),
    (Generate, {"header": {"principal": {"roles": SECRET}}, "asked": SECRET, "verdict": SECRET}),
]


@pytest.mark.parametrize(("model", "message"), HOLDING_SECRETS)
def test_an_explanation_repeats_no_values(model: type[Contract], message: Any) -> None:
    with pytest.raises(InvalidJob) as refused:
        parse(model, json.dumps(message).encode())
    assert str(refused.value)
    assert SECRET not in str(refused.value)


def test_an_explanation_names_the_first_five_faults() -> None:
    with pytest.raises(ValidationError) as wrong:
        Ask.model_validate({"question": "why?", "history": [{"role": "x", "content": 1}] * 4})
    told = explain(wrong.value)
    assert told.count("history.") == 5
    assert told.endswith("; and 3 more")
    assert "history.0.role" in told


def test_an_unknown_field_is_named_but_its_value_is_not() -> None:
    with pytest.raises(InvalidJob, match="quesiton") as refused:
        parse(Ask, json.dumps({"quesiton": SECRET}).encode())
    assert SECRET not in str(refused.value)
