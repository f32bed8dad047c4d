"""What leaves for the web, and what comes back from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.websearch.decision import MAX_WEB_QUERY_CHARS, back_to_grader, passages_of, web_query
from services.websearch.handler import search_web
from shared.contracts import (
    Evidence,
    Grade,
    Passage,
    PassageGrade,
    Principal,
    SearchWeb,
    TrailStep,
    Turn,
    WebPage,
)
from shared.errors import CairnError, InvalidModelReply, Misconfigured, SearchUnavailable
from shared.language import terms
from tests.support.bus import header, question

PRINCIPAL = Principal(tenant="acme-corp", subject="ada@example.org", roles=("board-member",), region="atlantis")
SECRETS = ("acme-corp", "ada@example.org", "board-member", "atlantis", "Internal", "confidential", "margin", "job-77")


def kept() -> Evidence:
    """Something that only the asker's tenant may know."""
    passage = Passage(
        passage_id="p-secret",
        document_id="margins.md",
        title="Internal margins",
        uri="file:///margins.md",
        text="Our confidential margin on boots is 42 per cent.",
        tenant="acme-corp",
        acl=("board-member",),
    )
    return Evidence(passage=passage, grade=PassageGrade(score=0.6), strips=(passage.text,))


def wanted(text: str = "How long do I have to return a tent?", *, language: str = "en", **fields: Any) -> SearchWeb:
    """A web search for somebody with something to hide: in the identity, the evidence and the rewritten queries."""
    told = header("job-77", principal=PRINCIPAL, language=language)
    told = told.updated(step=TrailStep(hop=0, queries=("confidential margin",), reason="Internal margins are partial"))
    return SearchWeb(
        **{
            "header": told,
            "asked": question(text, history=(Turn(role="assistant", content="The margin is confidential."),)),
            "route": "factual",
            "queries": ("confidential margin on boots",),
            "verdict": "ambiguous",
            "evidence": (kept(),),
            **fields,
        }
    )


# --- what leaves ---------------------------------------------------------------------------------------------------


def test_a_short_question_is_searched_as_it_was_asked() -> None:
    assert web_query(wanted("  Combien   coûte\nla tente ? ")) == "Combien coûte la tente ?"


LONG = "How long do the customers of the shop have to bring back the rented tents and the sleeping bags? "


def test_a_long_question_is_searched_by_its_content_words() -> None:
    query = web_query(wanted(LONG * 5))
    assert len(query) <= MAX_WEB_QUERY_CHARS
    assert query.startswith("customers shop bring rented tents")
    assert "the" not in query.split()


def test_a_question_at_the_limit_is_left_alone() -> None:
    text = "x" * MAX_WEB_QUERY_CHARS
    assert web_query(wanted(text)) == text


@pytest.mark.parametrize("text", ["x" * 900, "the " * 100 + "end", "? " * 300])
def test_a_long_question_without_words_that_fit_is_cut(text: str) -> None:
    assert 0 < len(web_query(wanted(text))) <= MAX_WEB_QUERY_CHARS


@pytest.mark.parametrize("text", ["How long?", LONG * 5, "x" * 900])
def test_nothing_of_the_asker_or_the_index_leaves(text: str) -> None:
    query = web_query(wanted(text)).lower()
    for secret in SECRETS:
        assert secret.lower() not in query


@settings(deadline=None)
@given(text=st.text(min_size=1, max_size=600).filter(str.strip), language=st.sampled_from(["en", "fr", "ru", "xx"]))
def test_only_the_askers_own_words_leave(text: str, language: str) -> None:
    msg = wanted(text, language=language)
    query = web_query(msg)
    assert 0 < len(query) <= MAX_WEB_QUERY_CHARS
    words = iter(msg.asked.question.split())
    whole = " ".join(msg.asked.question.split())
    # Each word of the query stands in the question, in the same order; or the query is where the question begins.
    assert all(word in words for word in query.split()) or whole.startswith(query)


@settings(deadline=None)
@given(words=st.lists(st.sampled_from(LONG.split()), min_size=60, max_size=90))
def test_content_words_keep_their_order(words: list[str]) -> None:
    query = web_query(wanted(" ".join(words))).split()
    content = [word for word in words if terms(word, "en")]
    assert query == content[: len(query)] or not content


# --- what comes back -----------------------------------------------------------------------------------------------

PAGES = (
    WebPage(url="https://example.org/tents?x=1", title="Tents", snippet="A tent may be returned within 30 days."),
    WebPage(url="http://example.net:8080/gear", title="G" * 900, snippet="Палатку можно вернуть за тридцать дней."),
)


def test_pages_become_passages_that_only_the_askers_tenant_reads() -> None:
    first, second = passages_of(PAGES, header(principal=PRINCIPAL))
    assert (first.document_id, first.uri, first.title) == (PAGES[0].url, PAGES[0].url, "Tents")
    assert (first.text, first.section) == (PAGES[0].snippet, "example.org")
    assert (first.origin, first.tenant, first.language) == ("web", "acme-corp", "en")
    assert (second.section, second.language, len(second.title)) == ("example.net", "ru", 300)
    assert PRINCIPAL.may_read(first)
    assert not Principal(tenant="globex", roles=("board-member",)).may_read(first)


def test_passages_are_scored_by_rank() -> None:
    scores = [passage.score for passage in passages_of(PAGES, header())]
    assert scores == [1.0, 0.5]


def test_a_passages_id_is_of_its_address_and_text() -> None:
    first, second = passages_of(PAGES, header())
    again, _ = passages_of(PAGES, header("another-job", principal=PRINCIPAL))
    (changed,) = passages_of([PAGES[0].model_copy(update={"snippet": "Changed."})], header())
    assert first.passage_id == again.passage_id
    assert len({first.passage_id, second.passage_id, changed.passage_id}) == 3


def test_no_pages_are_no_passages() -> None:
    assert passages_of((), header()) == ()


# --- back ----------------------------------------------------------------------------------------------------------


def test_the_grader_gets_what_was_kept_and_what_was_found() -> None:
    msg = wanted()
    passages = passages_of(PAGES, msg.header)
    command = back_to_grader(msg, "the query", passages, ("slow",))
    assert command.searched_web
    assert (command.passages, command.evidence, command.queries) == (passages, msg.evidence, msg.queries)
    assert (command.asked, command.route) == (msg.asked, msg.route)
    assert command.header.degraded == ("slow",)
    assert command.header.principal == PRINCIPAL


def test_the_trail_tells_of_the_search_without_its_texts() -> None:
    msg = wanted()
    command = back_to_grader(msg, "the query", passages_of(PAGES, msg.header), ())
    before, step = command.header.trail
    assert before == msg.header.trail[0]
    assert (step.queries, step.reason, step.verdict) == (("the query",), "", None)
    assert [(each.origin, each.score) for each in step.passages] == [("web", 1.0), ("web", 0.5)]
    assert PAGES[0].snippet not in step.model_dump_json()


# --- the handler ---------------------------------------------------------------------------------------------------


@dataclass
class FakeWeb:
    """A web that finds or raises what it is told."""

    finds: Sequence[WebPage] | Exception
    asked: list[tuple[str, str, int]] = field(default_factory=list)

    async def search(self, query: str, *, language: str, limit: int) -> Sequence[WebPage]:
        self.asked.append((query, language, limit))
        if isinstance(self.finds, Exception):
            raise self.finds
        return self.finds[:limit]

    async def aclose(self) -> None:
        raise AssertionError("the handler does not own it")


async def test_the_web_is_asked_once_in_the_questions_language() -> None:
    web = FakeWeb(PAGES)
    command = await search_web(wanted(language="fr"), web=web, top_k=2)
    assert web.asked == [("How long do I have to return a tent?", "fr", 2)]
    assert [passage.uri for passage in command.passages] == [page.url for page in PAGES]
    assert Grade.model_validate_json(command.model_dump_json()) == command


async def test_the_web_is_never_told_who_asks_or_what_is_known() -> None:
    web = FakeWeb(PAGES)
    await search_web(wanted(), web=web, top_k=5)
    assert not any(secret.lower() in repr(web.asked).lower() for secret in SECRETS)


@pytest.mark.parametrize("failure", [SearchUnavailable("down"), Misconfigured("down"), InvalidModelReply("down")])
async def test_a_web_that_fails_leaves_the_job_what_it_has(failure: CairnError) -> None:
    msg = wanted()
    command = await search_web(msg, web=FakeWeb(failure), top_k=5)
    assert (command.passages, command.evidence, command.searched_web) == ((), msg.evidence, True)
    assert command.header.degraded == ("web search failed: down",)


async def test_without_a_provider_the_trail_says_so() -> None:
    msg = wanted()
    command = await search_web(msg, web=None, top_k=5)
    assert (command.passages, command.evidence, command.searched_web) == ((), msg.evidence, True)
    assert command.header.degraded == ()
    assert command.header.trail[-1].queries == ()
    assert "CAIRN_WEB_PROVIDER" in command.header.trail[-1].reason


async def test_a_bug_is_not_taken_for_a_web_that_is_away() -> None:
    with pytest.raises(ZeroDivisionError):
        await search_web(wanted(), web=FakeWeb(ZeroDivisionError("oops")), top_k=5)
