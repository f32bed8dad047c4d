"""The generator: abstaining, citing, writing with a model, and falling back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.generator import decision, prompts
from services.generator.decision import Written
from services.generator.handler import generate
from services.generator.markers import markers_in
from services.generator.reading import quote, read_reply
from services.generator.settings import AnsweringPolicy
from shared.clients.chat import Completion, Message, ReplySchema, estimated_tokens
from shared.contracts import (
    Answered,
    Budget,
    Evidence,
    Generate,
    Header,
    Passage,
    PassageGrade,
    Principal,
    Question,
    Rewrite,
    TrailPassage,
    TrailStep,
    Verdict,
)
from shared.errors import InvalidModelReply, Misconfigured, ModelUnavailable
from shared.runtime.controls import Controls

POLICY = AnsweringPolicy(_env_file=None, self_check=False)  # the developer's .env is not the tests'
CHECKING = AnsweringPolicy(_env_file=None)
TENTS = "Unused tents can be returned within 45 days. Boots worn outdoors have 14 days. The customer pays the postage."
SHIPPING = "A parcel to France costs 6.90 euros. Express leaves the same day before 13:00."


class FakeChat:
    """Replies in turn; an exception among them is raised. Remembers what it was shown."""

    name = "fake-model"

    def __init__(
        self, *replies: str | Exception, finish_reason: str = "stop", checks: Sequence[str | Exception] = ()
    ) -> None:
        self.replies = list(replies)
        self.checks = list(checks)
        self.finish_reason = finish_reason
        self.calls = 0
        self.seen: list[Sequence[Message]] = []
        self.timeouts: list[float] = []

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
        self.seen.append(messages)
        self.timeouts.append(timeout_s)
        reply = (self.replies if schema is None else self.checks).pop(0)
        if isinstance(reply, Exception):
            raise reply
        self.calls += 1
        return Completion(reply, self.finish_reason, 100, 20, False)

    async def aclose(self) -> None: ...


def evidence(text: str = TENTS, score: float | None = 0.9, passage_id: str = "p1", **fields: Any) -> Evidence:
    passage = Passage(
        passage_id=passage_id,
        document_id="d",
        title=fields.pop("title", "Returns"),
        uri="file:///r.md",
        text=text,
        language=fields.pop("language", "en"),
        **fields,
    )
    return Evidence(passage=passage, grade=PassageGrade(score=score), strips=(text,))


def command(
    *found: Evidence,
    verdict: Verdict = "correct",
    language: str = "en",
    principal: Principal | None = None,
    budget: Budget | None = None,
    trail: tuple[TrailStep, ...] = (),
    **asked: Any,
) -> Generate:
    header = Header(
        job_id="job",
        entry_id="1-0",
        submitted_at=1000.0,
        deadline=1060.0,
        language=language,
        principal=principal or Principal(),
        budget=budget or Budget(),
        trail=trail,
    )
    asked.setdefault("question", "How long may I return a tent?")
    return Generate(header=header, asked=Question(**asked), route="factual", verdict=verdict, evidence=found)


async def run(msg: Generate, chat: FakeChat | None = None, policy: AnsweringPolicy = POLICY) -> Answered:
    outcome = await generate(msg, chat=chat, embedder=None, policy=policy, now=lambda: 1002.0)
    assert isinstance(outcome, Answered)
    return outcome


# --- abstaining and citing ------------------------------------------------------------------------------------------

TRAIL = tuple(
    TrailStep(
        hop=hop,
        queries=("tent return", f"query {hop}"),
        passages=tuple(TrailPassage(passage_id=name, origin="index", score=0.1) for name in ("a", "b", f"c{hop}")),
    )
    for hop in (0, 1)
)


@pytest.mark.parametrize(
    ("language", "says"),
    [
        ("en", ["I can't answer", "looked at: 4", "“tent return”, “query 0”, “query 1”", "Nothing there answers"]),
        ("fr", ["Je ne peux pas répondre", "examinés : 4", "« tent return »", "Rien n'y répond"]),
        ("ru", ["ответить на этот вопрос нельзя", "фрагментов: 4", "«tent return»", "Ответа на вопрос там нет"]),
        ("de", ["I can't answer"]),
    ],
)
async def test_abstains_in_the_language_of_the_question(language: str, says: list[str]) -> None:
    outcome = await run(command(evidence(), verdict="incorrect", language=language, trail=TRAIL), FakeChat())
    assert outcome.status == "abstained"
    assert outcome.confidence == 0.0
    assert outcome.citations == ()
    assert all(part in outcome.answer for part in says), outcome.answer


@pytest.mark.parametrize(
    ("verdict", "scores", "status"),
    [
        ("correct", [0.9], "answered"),
        ("incorrect", [0.9], "abstained"),
        ("correct", [], "abstained"),
        ("ambiguous", [0.44, 0.1], "abstained"),
        ("ambiguous", [0.1, 0.45], "answered"),
        ("ambiguous", [None], "answered"),
        ("ambiguous", [0.1, None], "answered"),
    ],
)
async def test_course(verdict: Verdict, scores: list[float | None], status: str) -> None:
    found = [evidence(score=score, passage_id=f"p{n}") for n, score in enumerate(scores)]
    assert (await run(command(*found, verdict=verdict), FakeChat("45 days [1]."))).status == status


@pytest.mark.parametrize(
    "hidden", [{"tenant": "other"}, {"acl": ("staff",)}, {"region": "eu"}, {"acl": ("staff",), "origin": "web"}]
)
@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("form", ["full", "citations"])
async def test_evidence_the_asker_may_not_read_is_dropped(hidden: dict[str, Any], writes: bool, form: str) -> None:
    secret = evidence("The margin on tents is 38.5 percent and they return.", passage_id="secret", **hidden)
    chat = FakeChat("45 days [1].", "45 days [1].")
    outcome = await run(command(secret, evidence(score=0.5), answer=form), chat if writes else None)
    assert {each.passage_id for each in outcome.citations} == {"p1"}
    assert "38.5" not in outcome.model_dump_json()
    assert "38.5" not in str(chat.seen)
    assert (await run(command(secret, answer=form), chat if writes else None)).status == "abstained"


async def test_citations_when_asked_for() -> None:
    outcome = await run(command(evidence(score=0.4), evidence(SHIPPING, 0.8, "p2"), answer="citations"), FakeChat())
    assert (outcome.status, outcome.answer, outcome.writer, outcome.degraded) == ("citations", "", "", ())
    assert [(each.n, each.passage_id) for each in outcome.citations] == [(1, "p2"), (2, "p1")]
    assert outcome.confidence == 0.8


# --- the model ------------------------------------------------------------------------------------------------------


async def test_answers_with_citations() -> None:
    chat = FakeChat("Unused tents: 45 days 【2】. France costs 6.90 [1, 9].")
    outcome = await run(command(evidence(score=0.7), evidence(SHIPPING, 0.9, "p2"), verdict="ambiguous"), chat)
    assert outcome.status == "answered"
    assert outcome.answer == "Unused tents: 45 days [1]. France costs 6.90 [2]."
    assert [(each.n, each.passage_id, each.quote) for each in outcome.citations] == [
        (1, "p1", "Unused tents can be returned within 45 days."),
        (2, "p2", "A parcel to France costs 6.90 euros."),
    ]
    assert outcome.confidence == pytest.approx(0.72)
    assert (outcome.writer, outcome.versions) == ("fake-model", {"answer_prompt": prompts.PROMPT_VERSION})
    (usage,) = outcome.usage
    assert (usage.stage, usage.calls, usage.prompt_tokens, usage.completion_tokens) == ("generator", 1, 100, 20)
    assert outcome.seconds == 2.0


@pytest.mark.parametrize("reply", ["NO_ANSWER", " no_answer".upper(), "**NO_ANSWER**", '"NO_ANSWER."', "NO ANSWER"])
async def test_no_answer_abstains(reply: str) -> None:
    outcome = await run(command(evidence()), FakeChat(reply))
    assert (outcome.status, outcome.usage[0].calls) == ("abstained", 1)


async def test_no_answer_to_one_part_leaves_the_other() -> None:
    outcome = await run(command(evidence()), FakeChat("Tents: 45 days [1]. For kayaks NO_ANSWER."))
    assert outcome.answer == "Tents: 45 days [1]."


@pytest.mark.parametrize("bad", ["", "   ", "Five days.", "Five days [7].", "Five days (1).", "`[1]`"])
async def test_without_a_valid_citation_it_is_asked_once_more(bad: str) -> None:
    chat = FakeChat(bad, "45 days [1].")
    outcome = await run(command(evidence()), chat)
    assert (outcome.status, outcome.usage[0].calls, outcome.usage[0].prompt_tokens) == ("answered", 2, 200)
    assert "can't be used" in chat.seen[1][-1]["content"]
    twice = await run(command(evidence()), FakeChat(bad, bad))
    assert (twice.status, twice.usage[0].calls) == ("abstained", 2)


@pytest.mark.parametrize("error", [ModelUnavailable("refused"), Misconfigured("401"), InvalidModelReply("no choices")])
async def test_a_failing_model_leaves_citations(error: Exception) -> None:
    outcome = await run(command(evidence()), FakeChat("uncited", error))
    assert outcome.status == "citations"
    assert outcome.degraded == (f"generator unavailable: citations only ({error})",)
    assert outcome.usage[0].calls == 1
    assert outcome.citations[0].passage_id == "p1"


@pytest.mark.parametrize(
    ("budget", "status", "writer"),
    [
        (Budget(model_calls=0), "answered", "extractive"),
        (Budget(cost=0.0), "answered", "extractive"),
        (Budget(tokens=20), "citations", ""),  # something is left, but not enough for the passages
    ],
)
async def test_a_spent_budget_leaves_quotes_or_citations(budget: Budget, status: str, writer: str) -> None:
    chat = FakeChat()
    outcome = await run(command(evidence(), budget=budget), chat)
    assert (outcome.status, outcome.writer, chat.seen) == (status, writer, [])
    assert "budget" in outcome.degraded[0]


async def test_an_answer_cut_at_the_limit_keeps_whole_sentences() -> None:
    outcome = await run(command(evidence()), FakeChat("45 days [1]. Boots have 1", finish_reason="length"))
    assert outcome.answer == "45 days [1]."
    assert outcome.degraded == ("answer cut at the token limit",)


async def test_the_model_gets_no_more_time_than_the_job_has() -> None:
    chat = FakeChat("45 days [1].")
    await generate(command(evidence()), chat=chat, embedder=None, policy=POLICY, now=lambda: 1050.0)
    assert chat.timeouts == [9.0]


# --- no search needed, another hop, switched off ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "says"), [("en", "Happy"), ("fr", "Avec plaisir"), ("ru", "Рад"), ("de", "Happy")]
)
async def test_small_talk_gets_a_friendly_word_and_claims_nothing(language: str, says: str) -> None:
    msg = command(verdict="incorrect", language=language).model_copy(update={"small_talk": True})
    outcome = await run(msg, FakeChat())
    assert (outcome.status, outcome.citations, outcome.usage, outcome.confidence) == ("answered", (), (), 0.0)
    assert outcome.answer.startswith(says)


async def test_an_unclear_question_is_asked_back() -> None:
    msg = command(verdict="incorrect").model_copy(update={"clarification": "Which tent do you mean?"})
    outcome = await run(msg, FakeChat())
    assert (outcome.status, outcome.answer, outcome.citations) == ("abstained", "Which tent do you mean?", ())


async def hopped(msg: Generate, chat: FakeChat, policy: AnsweringPolicy = CHECKING) -> Answered | Rewrite:
    return await generate(msg, chat=chat, embedder=None, policy=policy, now=lambda: 1002.0)


LACKS_PRICE = '{"grounded": 1, "answers": 0.3, "unsupported": [], "missing": "price of a kayak"}'


async def test_what_is_missing_is_searched_for_while_hops_are_left() -> None:
    secret = evidence("The margin.", passage_id="secret", acl=("staff",))
    msg = command(evidence(), secret, evidence(), max_hops=2)
    for chat in (FakeChat("NO_ANSWER: price of a kayak"), FakeChat(*["45 days [1]."] * 2, checks=[LACKS_PRICE] * 2)):
        further = await hopped(msg, chat)
        assert isinstance(further, Rewrite)
        assert (further.missing, further.verdict, further.header.hop) == ("price of a kayak", "correct", 1)
        assert [each.passage.passage_id for each in further.evidence] == ["p1"]
        assert (further.header.usage[0].calls, further.asked) == (chat.calls, msg.asked)
        assert further.header.budget.model_calls == msg.header.budget.model_calls - chat.calls
        assert further.header.versions["answer_prompt"] == "answer-2"


@pytest.mark.parametrize(
    ("hop", "max_hops", "reply", "budget", "deadline"),
    [
        (1, 2, "NO_ANSWER: price", Budget(), 1060.0),
        (0, 1, "NO_ANSWER: price", Budget(), 1060.0),
        (0, 3, "NO_ANSWER", Budget(), 1060.0),
        (0, 3, "NO_ANSWER: ---", Budget(), 1060.0),
        (0, 3, "NO_ANSWER: price", Budget(model_calls=1), 1060.0),
        (0, 3, "NO_ANSWER: price", Budget(), 1006.0),
    ],
)
async def test_without_hop_word_budget_or_time_it_abstains(
    hop: int, max_hops: int, reply: str, budget: Budget, deadline: float
) -> None:
    msg = command(evidence(), budget=budget, max_hops=max_hops)
    header = msg.header.model_copy(update={"hop": hop, "deadline": deadline})
    outcome = await hopped(msg.model_copy(update={"header": header}), FakeChat(reply))
    assert isinstance(outcome, Answered)
    assert (outcome.status, outcome.hops) == ("abstained", hop + 1)


@pytest.mark.parametrize("writes", [True, False])
async def test_switched_off_it_cites(writes: bool) -> None:
    off, chat = Controls({"generation": "off: groundedness 0.20"}), FakeChat()
    outcome = await generate(
        command(evidence()), chat=chat if writes else None, embedder=None, policy=POLICY, controls=off
    )
    assert isinstance(outcome, Answered)
    assert (outcome.status, outcome.degraded, chat.seen) == ("citations", (decision.SWITCHED_OFF,), [])


async def test_an_abstention_names_the_collection_and_whom_to_ask() -> None:
    policy = AnsweringPolicy(_env_file=None, owners={"handbook": "help@example.org"})
    for language, ask in {"en": "You can ask: help", "fr": "demander à : help", "ru": "спросить: help"}.items():
        outcome = await run(command(collection="handbook", language=language), FakeChat(), policy)
        assert "(handbook)" in outcome.answer
        assert ask in outcome.answer
    assert "help@" not in (await run(command(collection="other"), FakeChat(), policy)).answer


# --- the self-check --------------------------------------------------------------------------------------------------

HOLDS = '{"grounded": 0.8, "answers": 0.7, "unsupported": [], "missing": ""}'


async def test_confidence_is_no_higher_than_the_check() -> None:
    chat = FakeChat("Unused tents: 45 days [1].", checks=[HOLDS])
    outcome = await run(command(evidence(score=0.9)), chat, CHECKING)
    assert (outcome.status, outcome.confidence, outcome.degraded) == ("answered", 0.7, ())
    assert outcome.versions == {"answer_prompt": "answer-2", "check_prompt": "check-1"}
    assert outcome.usage[0].calls == 2
    assert "S1: Unused tents: 45 days [1]." in chat.seen[1][-1]["content"]


async def test_a_bad_answer_is_written_again_with_what_was_found() -> None:
    chat = FakeChat("Tents: 99 days [1].", "Unused tents: 45 days [1].", checks=[HOLDS, HOLDS])
    outcome = await run(command(evidence()), chat, CHECKING)
    assert (outcome.answer, outcome.degraded) == ("Unused tents: 45 days [1].", ())
    assert "99 is not in what it cites" in chat.seen[2][-1]["content"]


async def test_what_stays_without_support_is_left_out() -> None:
    bad = "Unused tents: 45 days [1]. Boots cost 77 euros [1]."
    outcome = await run(command(evidence(score=0.9)), FakeChat(bad, bad))
    assert (outcome.answer, outcome.confidence) == ("Unused tents: 45 days [1].", 0.5)
    assert outcome.degraded == ("sentences without support left out: 1 of 2",)
    assert (await run(command(evidence()), FakeChat(*["Boots cost 77 euros [1]."] * 2))).status == "abstained"


@pytest.mark.parametrize("second", [ModelUnavailable("refused"), "", "Uncited."])
async def test_what_holds_of_a_first_reply_is_answered_when_the_second_is_of_no_use(second: str | Exception) -> None:
    outcome = await run(command(evidence()), FakeChat("Unused tents: 45 days [1]. Boots cost 77 euros [1].", second))
    assert (outcome.status, outcome.answer) == ("answered", "Unused tents: 45 days [1].")


@pytest.mark.parametrize(
    ("check", "why"), [("?", "can't be read"), (ModelUnavailable("refused"), "refused"), (Misconfigured("401"), "401")]
)
async def test_an_answer_that_can_not_be_checked_is_marked(check: str | Exception, why: str) -> None:
    outcome = await run(command(evidence()), FakeChat("Unused tents: 45 days [1].", checks=[check]), CHECKING)
    assert outcome.status == "answered"
    (mark,) = outcome.degraded
    assert mark.startswith("answer not checked by the model: ")
    assert why in mark


async def test_a_budget_that_ends_before_the_check_leaves_the_answer_marked() -> None:
    msg = command(evidence(), budget=Budget(model_calls=1))
    outcome = await run(msg, FakeChat("Unused tents: 45 days [1]."), CHECKING)
    assert (outcome.status, outcome.usage[0].calls) == ("answered", 1)
    assert "budget" in outcome.degraded[0]


# --- promise 6 ------------------------------------------------------------------------------------------------------


@settings(deadline=None)  # the first example loads language models
@given(
    reply=st.lists(
        st.sampled_from(
            ["Tents 45 days", "14 jours", " [1]", "[2]", "[3]", "[1, 2]", "[9]", ". ", "\n", "`", "[", "NO_ANSWER"]
        ),
        max_size=14,
    ).map("".join),
    reason=st.sampled_from(["stop", "length"]),
)
def test_every_marker_has_a_citation_and_every_citation_a_marker(reply: str, reason: str) -> None:
    shown = prompts.fit([evidence(), evidence(SHIPPING, 0.5, "p2")], 3000, estimated_tokens)
    written = read_reply(reply, reason, shown, "en")
    if isinstance(written, Written):
        assert set(markers_in(written.answer)) == {each.n for each in written.citations} != set()
        assert [each.n for each in written.citations] == list(range(1, len(written.citations) + 1))
        for each, source in zip(written.citations, written.evidence, strict=True):
            assert each.quote in source.passage.text
            assert 0 < len(each.quote) <= 300


@settings(deadline=None)  # the first example loads language models
@given(text=st.text(min_size=1, max_size=700), claim=st.text(max_size=50), strip=st.text(max_size=30))
def test_a_quote_stands_in_the_passage(text: str, claim: str, strip: str) -> None:
    found = evidence(text).model_copy(update={"strips": (strip, text[3:50])})
    assert quote(found, claim, "en") in text
