"""Which entries are questions, and the job that a question becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.decision import admission, read_ask
from services.gateway.handler import admit
from services.gateway.settings import JwtSettings
from services.gateway.tokens import TokenVerifier
from shared.contracts import Ask, Budget, Filters, Principal, Rewrite, Turn
from shared.errors import InvalidJob, NotAllowed
from shared.runtime.delivery import Delivery

MAX_BYTES = 100_000
ENTRY_ID = "1700000000123-4"


def read(fields: dict[bytes, bytes], max_bytes: int = MAX_BYTES) -> Ask:
    return read_ask(Delivery("gateway", ENTRY_ID, fields), max_bytes)


def in_data(**fields: Any) -> dict[bytes, bytes]:
    return {b"data": json.dumps(fields).encode()}


def in_fields(**fields: Any) -> dict[bytes, bytes]:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}
    return {name.encode(): text.encode() for name, text in texts.items()}


# --- reading -------------------------------------------------------------------------------------------------------

EVERYTHING: dict[str, Any] = {
    "question": "Combien coûte la tente ?",
    "collection": "handbook",
    "top_k": 3,
    "max_hops": 2,
    "web": "off",
    "answer": "citations",
    "history": [{"role": "user", "content": "Bonjour"}, {"role": "assistant", "content": '{"not": "parsed"}'}],
    "language": "fr",
    "filters": {"document_ids": ["a", "b"], "languages": ["fr"]},
    "job_id": "mine",
    "deadline_s": 12.5,
    "token": "a.b.c",
}


@pytest.mark.parametrize("form", [in_data, in_fields])
def test_both_forms_carry_every_property(form: Any) -> None:
    ask = read(form(**EVERYTHING))
    assert ask == Ask(**{**EVERYTHING, "entry_id": ENTRY_ID})
    assert ask.history[1] == Turn(role="assistant", content='{"not": "parsed"}')
    assert ask.filters == Filters(document_ids=("a", "b"), languages=("fr",))


@pytest.mark.parametrize("form", [in_data, in_fields])
def test_a_question_alone_is_enough(form: Any) -> None:
    ask = read(form(question="  why?  "))
    assert (ask.question, ask.top_k, ask.deadline_s, ask.token) == ("why?", None, 60.0, None)


@pytest.mark.parametrize("form", [in_data, in_fields])
def test_the_job_id_is_the_entrys_unless_the_question_names_one(form: Any) -> None:
    assert read(form(question="why?")).job_id == ENTRY_ID
    assert read(form(question="why?", job_id="mine")).job_id == "mine"
    assert read(form(question="why?", job_id="mine")).entry_id == ENTRY_ID


@pytest.mark.parametrize("text", ["42", "true", "null", "[1]", '{"a": 1}', '"quoted"'])
def test_a_question_in_a_field_is_text_whatever_it_looks_like(text: str) -> None:
    assert read({b"question": text.encode()}).question == text


REFUSED = [
    pytest.param({}, "no fields", id="nothing"),
    pytest.param(in_data(question=""), "question", id="empty question"),
    pytest.param(in_fields(question=" \t\n"), "question", id="blank question"),
    pytest.param(in_fields(question="\x1c\x1f"), "question", id="blank by separators"),
    pytest.param(in_data(question="x" * 8_001), "question", id="long question"),
    pytest.param(in_data(), "question", id="no question"),
    pytest.param(in_data(question="why?", qeustion="x"), "qeustion", id="typo in data"),
    pytest.param(in_fields(question="why?", topk="3"), "topk", id="typo in a field"),
    pytest.param({**in_data(question="why?"), **in_fields(top_k=3)}, "not both", id="both forms"),
    pytest.param(in_fields(question="why?", top_k=""), "top_k", id="empty number"),
    pytest.param(in_fields(question="why?", top_k="3.5"), "top_k", id="fraction"),
    pytest.param(in_fields(question="why?", top_k="9" * 5_000), "top_k", id="number of 5000 digits"),
    pytest.param(in_fields(question="why?", deadline_s="nan"), "deadline_s", id="not a number"),
    pytest.param(in_data(question="why?", deadline_s=float("nan")), "deadline_s", id="NaN in JSON"),
    pytest.param(in_data(question="why?", deadline_s=float("inf")), "deadline_s", id="for ever"),
    pytest.param(in_data(question="why?", deadline_s=0), "deadline_s", id="no time"),
    pytest.param(in_data(question="why?", entry_id="1-0"), "entry_id", id="private, in data"),
    pytest.param(in_fields(question="why?", entry_id="1-0"), "entry_id", id="private, in a field"),
    pytest.param(in_fields(question="why?", history="[{"), "JSON", id="broken history"),
    pytest.param(in_fields(question="why?", history="{}"), "history", id="history is no list"),
    pytest.param(in_fields(question="why?", history="[" * 50_000), "JSON", id="deep history"),
    pytest.param(in_fields(question="why?", filters="null"), "filters", id="null filters"),
    pytest.param(in_fields(question="why?", filters={"tenant": "acme"}), "tenant", id="filter on the tenant"),
    pytest.param(in_data(question="why?", principal={"tenant": "acme"}), "principal", id="forged principal"),
    pytest.param(in_data(question="why?", job_id="a b"), "job_id", id="blank in the id"),
    pytest.param(in_fields(question="why?", job_id="a\n"), "job_id", id="line end in the id"),
    pytest.param(in_fields(question="why?", job_id="x" * 129), "job_id", id="long id"),
    pytest.param({b"data": b'{"question":"\\ud800"}'}, "JSON", id="half a character in data"),
    pytest.param({b"question": b"\xed\xa0\x80"}, "UTF-8", id="half a character in a field"),
    pytest.param({b"question": b"why?", b"\xff": b""}, "UTF-8", id="binary name"),
]


@pytest.mark.parametrize(("fields", "named"), REFUSED)
def test_an_entry_that_is_no_question_is_refused_by_name(fields: dict[bytes, bytes], named: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        read(fields)
    assert named in str(refused.value)
    assert len(str(refused.value)) < 500


def test_an_entry_over_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(InvalidJob, match="CAIRN_MAX_MESSAGE_BYTES"):
        read({b"question": b"\xff" * 100}, max_bytes=50)


@pytest.mark.parametrize("form", [in_data, in_fields])
def test_a_refusal_does_not_repeat_the_token(form: Any) -> None:
    with pytest.raises(InvalidJob) as refused:
        read(form(question="why?", token="s3cr3t" * 4_000))
    assert "token" in str(refused.value)
    assert "s3cr3t" not in str(refused.value)


def test_a_nested_field_changes_nothing_but_itself() -> None:
    """`history` and `filters` are put into one document to be read; neither may reach the other properties."""
    ask = read(in_fields(question="why?", filters='{},"top_k":50,"question":"forged","web":"only"'))
    assert (ask.question, ask.top_k, ask.web) == ("why?", None, "auto")


_names = st.sampled_from([name.encode() for name in Ask.model_fields]) | st.just(b"data") | st.binary(max_size=8)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_asks = st.dictionaries(st.sampled_from(list(Ask.model_fields)), _json, max_size=6)
_values = (
    st.binary(max_size=40)
    | st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | (_json | _asks).map(lambda value: json.dumps(value).encode())
)


@settings(deadline=None, max_examples=300)
@given(fields=st.dictionaries(_names, _values, max_size=5))
def test_any_bytes_are_a_question_or_refused(fields: dict[bytes, bytes]) -> None:
    try:
        ask = read(fields)
    except InvalidJob as refused:
        assert str(refused)
        return
    assert ask.question.strip()
    assert (ask.entry_id, bool(ask.job_id)) == (ENTRY_ID, True)
    job = admission(ask, Principal(), submitted_at=0.0, budget=Budget())
    assert Rewrite.model_validate_json(job.model_dump_json()) == job


@settings(deadline=None, max_examples=100)
@given(question=st.text(min_size=1, max_size=200).filter(str.strip))
def test_both_forms_read_the_same_question(question: str) -> None:
    assert read({b"question": question.encode()}) == read(in_data(question=question))


# --- admission -----------------------------------------------------------------------------------------------------


def admitted(**fields: Any) -> Rewrite:
    ask = read(in_data(**{"question": "why?", **fields}))
    return admission(
        ask,
        Principal(tenant="acme", subject="u-1", roles=("staff",)),
        submitted_at=1_000.0,
        budget=Budget(model_calls=3, tokens=500),
    )


def test_the_first_command_carries_what_was_asked() -> None:
    job = admitted(**EVERYTHING)
    for name in ("question", "collection", "top_k", "max_hops", "web", "answer", "language"):
        assert getattr(job.asked, name) == EVERYTHING[name]
    assert len(job.asked.history) == 2
    assert job.asked.filters.document_ids == ("a", "b")


def test_the_header_is_of_the_entry_and_the_verified_principal() -> None:
    header = admitted(deadline_s=7).header
    assert (header.job_id, header.entry_id) == (ENTRY_ID, ENTRY_ID)
    assert (header.submitted_at, header.deadline) == (1_000.0, 1_007.0)
    assert header.principal == Principal(tenant="acme", subject="u-1", roles=("staff",))
    assert header.budget == Budget(model_calls=3, tokens=500)
    assert (header.hop, header.trail, header.usage) == (0, (), ())


def test_a_question_of_no_collection_leaves_the_choice_to_later_stages() -> None:
    assert admitted().asked.collection is None
    assert admitted(collection="handbook").asked.collection == "handbook"


def test_the_token_never_travels() -> None:
    job = admitted(token="eyJ.s3cr3t.sig")
    assert "s3cr3t" not in job.model_dump_json()
    assert "token" not in job.asked.model_dump()


def test_a_token_is_not_shown_where_a_question_is_printed() -> None:
    assert "s3cr3t" not in repr(read(in_data(question="why?", token="s3cr3t")))


async def test_the_deadline_counts_from_the_entrys_own_time() -> None:
    ask = read(in_data(question="why?", deadline_s=5))
    job = await admit(ask, verifier=TokenVerifier(JwtSettings()), budget=Budget())
    assert job.header.submitted_at == 1_700_000_000.123
    assert job.header.deadline == pytest.approx(1_700_000_005.123)
    assert job.header.principal == Principal()


async def test_a_token_that_nobody_can_verify_is_no_admission() -> None:
    ask = read(in_data(question="why?", token="a.b.c"))
    with pytest.raises(NotAllowed, match="CAIRN_JWT_SECRET"):
        await admit(ask, verifier=TokenVerifier(JwtSettings()), budget=Budget())
