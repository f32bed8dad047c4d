"""What leaves for the web, and what comes back from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.websearch.decision import (
    MAX_QUERY_CHARS,
    MAX_QUERY_WORDS,
    Query,
    back_to_grader,
    candidates,
    chosen,
    query_by_rules,
    read_query,
    web_passage,
)
from services.websearch.handler import search_web
from services.websearch.prompts import conversation
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
from shared.runtime.controls import Controls
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


def wanted(
    text: str = "How long do I have to return a tent?",
    *,
    language: str = "en",
    history: tuple[Turn, ...] = (Turn(role="assistant", content="The margin is confidential."),),
    **fields: Any,
) -> SearchWeb:
    """A web search for somebody with something to hide: in the identity, the evidence and the rewritten queries."""
    told = header("job-77", principal=PRINCIPAL, language=language)
    told = told.updated(step=TrailStep(hop=0, queries=("confidential margin",), reason="Internal margins are partial"))
    return SearchWeb(
        **{
            "header": told,
            "asked": question(text, history=history),
            "route": "factual",
            "queries": ("confidential margin on boots",),
            "verdict": "ambiguous",
            "evidence": (kept(),),
            **fields,
        }
    )


# --- what leaves ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "language", "query"),
    [
        ("How long do I have to return a tent?", "en", "long have return tent"),
        ("  Combien   coûte\nla tente « Nuptse 2 » ? ", "fr", "Combien coûte tente Nuptse 2"),
        ("Сколько стоит палатка НК-Т2 для зимы?", "ru", "Сколько стоит палатка НК-Т2 зимы"),
        ('!images site:example.org -cats "snow" boots', "en", "images site:example.org cats snow boots"),
        ("What is the difference between C++, C# and .NET?", "en", "What difference between C++ C# .NET"),
        ('Who sang "Set the Fire to the Third Bar"?', "en", "sang Set Fire Third Bar"),
        ("Write to ada@example.org about boots", "en", "Write about boots"),
        ("Who is it?", "en", "Who is it"),
    ],
)
def test_rules_take_the_telling_words(asked: str, language: str, query: str) -> None:
    assert query_by_rules(question(asked), language) == query


LONG = "How long do the customers of the shop have to bring back the rented tents and the sleeping bags? "


def test_of_a_long_question_names_and_numbers_stay() -> None:
    filler = " ".join(f"{letter * 5}" for letter in "abcdefghijklmnopqrstuvwxyz")
    words = query_by_rules(question(f"{filler} Nuptse costs 1834 {filler}"), "en").split()
    assert len(words) == MAX_QUERY_WORDS
    assert {"Nuptse", "1834"} < set(words)


@pytest.mark.parametrize("text", ["x" * 900, "the " * 100 + "end", " ".join(["y" * 50] * 30), "the of and"])
def test_whatever_the_question_the_query_is_bounded(text: str) -> None:
    assert 0 < len(query_by_rules(question(text), "en")) <= MAX_QUERY_CHARS


@pytest.mark.parametrize("text", ["?" * 300, "@ @", "ada@example.org"])
def test_a_question_without_words_gives_no_query(text: str) -> None:
    assert query_by_rules(question(text), "en") == ""


def test_a_follow_up_is_searched_with_the_users_question_before_it() -> None:
    turns = (
        Turn(role="user", content="What is the price of the Nuptse tent?"),
        Turn(role="assistant", content="The margin is confidential."),
    )
    assert query_by_rules(question("And in winter?", history=turns), "en") == "What price Nuptse tent winter"


@pytest.mark.parametrize("text", ["How long?", LONG * 5, "x" * 900])
def test_nothing_of_the_asker_or_the_index_leaves(text: str) -> None:
    msg = wanted(text)
    query = query_by_rules(msg.asked, "en").lower()
    for secret in SECRETS:
        assert secret.lower() not in query


def test_the_model_is_told_the_users_own_words_and_nothing_else() -> None:
    asked = wanted(history=(Turn(role="user", content="Do you sell tents?"), *wanted().asked.history)).asked
    system, user = conversation(asked)
    assert user["content"] == f"Asked earlier:\nDo you sell tents?\n\nQuestion:\n{asked.question}"
    assert not any(secret.lower() in system["content"].lower() for secret in SECRETS)


@given(text=st.text(min_size=1, max_size=600).filter(str.strip), language=st.sampled_from(["en", "fr", "ru", "xx"]))
def test_only_the_askers_own_words_leave(text: str, language: str) -> None:
    asked = question(text)
    query = query_by_rules(asked, language)
    assert len(query) <= MAX_QUERY_CHARS
    words = iter(asked.question.split())
    # Each word of the query stands in a word of the question, in the same order.
    assert all(any(word in whole for whole in words) for word in query.split())


@pytest.mark.parametrize(
    ("reply", "query"),
    [
        ("tent return period", "tent return period"),
        ("  `tent, return, period`\n", "tent return period"),
        ('"tent" return -shop !g site:example.org', "tent return shop g site:example.org"),
        ("палатка возврат срок", "палатка возврат срок"),
        ("", ""),
        ("!!! ???", ""),
        ("first line\nsecond line", ""),
        ("word " * 17, ""),
        ("x" * 201, ""),
        ("ask ada@example.org", "ask"),
    ],
)
def test_a_models_reply_is_a_query_or_nothing(reply: str, query: str) -> None:
    assert read_query(reply) == query


# --- what comes back -----------------------------------------------------------------------------------------------

PAGES = (
    WebPage(url="https://example.org/tents?x=1", title="Tents", snippet="A tent may be returned within 30 days."),
    WebPage(url="http://example.net:8080/gear", title="G" * 900, snippet="Палатку можно вернуть за тридцать дней."),
)


def passage(text: str, url: str = "https://example.org/", **fields: Any) -> Passage:
    return web_passage(header(principal=PRINCIPAL), url=url, title="A shop", text=text, place="example.org", **fields)


def test_a_web_passage_is_the_askers_tenants_and_knows_its_source() -> None:
    found = passage("Палатку можно вернуть.", fetched_at=17.0)
    assert (found.document_id, found.uri, found.title, found.section) == (
        "https://example.org/",
        "https://example.org/",
        "A shop",
        "example.org",
    )
    assert (found.origin, found.tenant, found.language, found.fetched_at) == ("web", "acme-corp", "ru", 17.0)
    assert PRINCIPAL.may_read(found)
    assert not Principal(tenant="globex", roles=("board-member",)).may_read(found)


def test_a_passages_id_is_of_its_address_and_text() -> None:
    ids = {passage("a").passage_id, passage("b").passage_id, passage("a", "https://example.net/").passage_id}
    assert len(ids) == 3
    assert passage("a", fetched_at=1.0).passage_id == passage("a", fetched_at=2.0).passage_id


def page(name: str, *texts: str) -> list[Passage]:
    return [passage(text, f"https://{name}.example/") for text in texts]


def test_candidates_are_the_best_of_each_page_in_turn() -> None:
    one = page("one", "nothing", "a tent is returned", "a tent")
    two = page("two", "boots", "a tent is returned within days")
    found = candidates("When is a tent returned within days?", "en", [one, two], 4)
    assert [(each.uri, each.text) for each in found] == [
        ("https://two.example/", "a tent is returned within days"),
        ("https://one.example/", "a tent is returned"),
        ("https://one.example/", "a tent"),
        ("https://two.example/", "boots"),
    ]


def test_a_page_in_another_language_has_its_candidate() -> None:
    pages = [page("en", *(f"tent {n} returned" for n in range(9))), page("ru", "Палатку можно вернуть.")]
    assert "https://ru.example/" in {each.uri for each in candidates("tent returned", "en", pages, 4)}


def test_what_two_addresses_say_word_for_word_counts_once_by_its_id() -> None:
    assert len(candidates("tent", "en", [page("a", "tent"), page("a", "tent")], 9)) == 1


def test_half_of_the_chosen_are_of_one_page_at_most_where_there_are_others() -> None:
    ranked = page("one", *"abcdef") + page("two", "g") + page("three", "h")
    found = chosen(ranked, 4)
    assert [each.text for each in found] == ["a", "b", "g", "h"]
    assert [each.score for each in found] == [1.0, 0.5, 1 / 3, 0.25]
    assert [each.text for each in chosen(ranked[:6], 4)] == ["a", "b", "c", "d"]


# --- back ----------------------------------------------------------------------------------------------------------


def test_the_grader_gets_what_was_kept_and_what_was_found() -> None:
    msg = wanted()
    passages = (passage("A tent may be returned."),)
    command = back_to_grader(msg, Query("the query"), passages, ("slow",))
    assert command.searched_web
    assert (command.passages, command.evidence, command.queries) == (passages, msg.evidence, msg.queries)
    assert (command.asked, command.route) == (msg.asked, msg.route)
    assert command.header.degraded == ("slow",)
    assert command.header.principal == PRINCIPAL


def test_the_trail_tells_of_the_search_without_its_texts() -> None:
    msg = wanted()
    command = back_to_grader(msg, Query("the query"), chosen([passage("one"), passage("two")], 2))
    before, step = command.header.trail
    assert before == msg.header.trail[0]
    assert (step.queries, step.reason, step.verdict) == (("the query",), "", None)
    assert [(each.origin, each.score) for each in step.passages] == [("web", 1.0), ("web", 0.5)]
    assert "one" not in step.model_dump_json()


# --- the handler ---------------------------------------------------------------------------------------------------


@dataclass
class FakeWeb:
    """A web that finds or raises what it is told."""

    finds: Sequence[WebPage] | Exception
    asked: list[tuple[str, str, int]] = field(default_factory=list)

    async def search(self, query: str, *, language: str, limit: int, timeout_s: float) -> Sequence[WebPage]:
        self.asked.append((query, language, limit))
        if isinstance(self.finds, Exception):
            raise self.finds
        return self.finds[:limit]

    async def aclose(self) -> None:
        raise AssertionError("the handler does not own it")


async def test_the_web_is_asked_once_in_the_questions_language() -> None:
    web = FakeWeb(PAGES)
    command = await search_web(wanted(language="fr", text="Combien coûte la tente ?"), web=web, top_k=2)
    assert web.asked == [("Combien coûte tente", "fr", 10)]
    assert [each.uri for each in command.passages] == [each.url for each in PAGES]
    assert Grade.model_validate_json(command.model_dump_json()) == command


async def test_a_web_that_is_switched_off_is_not_asked_and_the_outcome_says_so() -> None:
    web = FakeWeb(PAGES)
    command = await search_web(wanted(), web=web, top_k=2, controls=Controls({"web": "off"}))
    assert (web.asked, command.passages, command.searched_web) == ([], (), True)
    assert command.header.degraded == ("web search is switched off",)
    assert command.header.trail[-1].reason == "web search is switched off"


async def test_an_excerpt_is_marked() -> None:
    command = await search_web(wanted(), web=FakeWeb(PAGES), top_k=2)
    assert [(each.section, each.fetched_at) for each in command.passages] == [
        ("example.org (excerpt)", None),
        ("example.net (excerpt)", None),
    ]


async def test_no_more_passages_than_wanted() -> None:
    many = [page.model_copy(update={"url": f"https://{n}.example/"}) for n in range(9) for page in PAGES[:1]]
    assert len((await search_web(wanted(), web=FakeWeb(many), top_k=3)).passages) == 3


@pytest.mark.parametrize("failure", [SearchUnavailable("down"), Misconfigured("down"), InvalidModelReply("down")])
async def test_a_web_that_fails_leaves_the_job_what_it_has(failure: CairnError) -> None:
    msg = wanted()
    command = await search_web(msg, web=FakeWeb(failure), top_k=5)
    assert (command.passages, command.evidence, command.searched_web) == ((), msg.evidence, True)
    assert command.header.degraded == ("web search failed: down",)


@pytest.mark.parametrize("found", [[], [WebPage(url="https://example.org/", title="No excerpt", snippet="")]])
async def test_a_web_that_knows_nothing_is_marked(found: list[WebPage]) -> None:
    msg = wanted()
    command = await search_web(msg, web=FakeWeb(found), top_k=5)
    assert (command.passages, command.evidence) == ((), msg.evidence)
    assert command.header.degraded == ("web search found nothing",)


async def test_without_a_provider_the_trail_says_so() -> None:
    msg = wanted()
    command = await search_web(msg, web=None, top_k=5)
    assert (command.passages, command.evidence, command.searched_web) == ((), msg.evidence, True)
    assert command.header.degraded == ()
    assert command.header.trail[-1].queries == ()
    assert "CAIRN_WEB_PROVIDER" in command.header.trail[-1].reason


async def test_a_question_without_words_is_not_sent() -> None:
    web = FakeWeb(PAGES)
    command = await search_web(wanted("???"), web=web, top_k=5)
    assert web.asked == []
    assert "no words" in command.header.degraded[0]


async def test_a_bug_is_not_taken_for_a_web_that_is_away() -> None:
    with pytest.raises(ZeroDivisionError):
        await search_web(wanted(), web=FakeWeb(ZeroDivisionError("oops")), top_k=5)
