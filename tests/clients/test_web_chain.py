"""Several providers in a row: order, fallbacks, allowances, breaker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from shared.clients.web.chain import Allowance, ProviderChain
from shared.clients.web.model import Domains, Hit
from shared.contracts import WebPage
from shared.errors import CairnError, InvalidModelReply, Misconfigured, SearchUnavailable

PAGE = Hit("https://example.org/", "Tents", "A tent is a shelter.")
FAILURES = [SearchUnavailable("it is down"), Misconfigured("wrong key"), InvalidModelReply("no JSON")]


@dataclass
class Fake:
    """A provider that finds, raises, or hangs."""

    name: str
    answer: list[Hit] | Exception | None = None
    asked: int = 0
    closed: bool = False
    given_s: list[float] = field(default_factory=list)

    async def hits(self, query: str, language: str, limit: int, timeout_s: float) -> list[Hit]:
        self.asked += 1
        self.given_s.append(timeout_s)
        if self.answer is None:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return list(self.answer or ())

    async def aclose(self) -> None:
        self.closed = True


def chain(*fakes: Fake, timeout_s: float = 5.0, per_minute: int | None = None) -> ProviderChain:
    return ProviderChain(
        [(fake, Allowance(per_minute, None)) for fake in fakes], domains=Domains(), timeout_s=timeout_s
    )


async def search(web: ProviderChain, timeout_s: float = 10.0) -> Sequence[WebPage]:
    return await web.search("tents", language="en", limit=5, timeout_s=timeout_s)


async def test_the_first_that_finds_something_is_enough() -> None:
    first, second = Fake("first", [PAGE]), Fake("second", [PAGE])
    assert len(await search(chain(first, second))) == 1
    assert (first.asked, second.asked) == (1, 0)


@pytest.mark.parametrize("failure", FAILURES)
async def test_after_a_failure_the_next_is_asked(failure: CairnError) -> None:
    first, second = Fake("first", failure), Fake("second", [PAGE])
    assert len(await search(chain(first, second))) == 1


async def test_where_one_finds_nothing_the_next_is_asked() -> None:
    assert len(await search(chain(Fake("first", []), Fake("second", [PAGE])))) == 1


async def test_nothing_found_by_one_is_an_answer_though_another_failed() -> None:
    assert await search(chain(Fake("first", SearchUnavailable("down")), Fake("second", []))) == ()


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_single_failure_stays_what_it_is(failure: CairnError) -> None:
    with pytest.raises(type(failure), match=str(failure)):
        await search(chain(Fake("only", failure)))


async def test_all_failures_are_told() -> None:
    with pytest.raises(SearchUnavailable, match="it is down; wrong key; no JSON"):
        await search(chain(*(Fake(str(n), failure) for n, failure in enumerate(FAILURES))))


async def test_one_that_hangs_is_left_and_the_next_asked() -> None:
    assert len(await search(chain(Fake("hangs"), Fake("second", [PAGE]), timeout_s=0.05))) == 1


async def test_the_callers_time_bounds_all_of_them() -> None:
    hanging = [Fake("a"), Fake("b"), Fake("c")]
    with pytest.raises(SearchUnavailable, match=r"a did not answer.*b did not answer.*c did not answer"):
        await search(chain(*hanging), timeout_s=0.1)
    assert sum(each.given_s[0] for each in hanging) <= 0.1 + 1e-6


async def test_a_provider_that_asks_for_a_pause_gets_it() -> None:
    first, second = Fake("first", SearchUnavailable("busy", retry_after_s=60)), Fake("second", [PAGE])
    web = chain(first, second)
    for _ in range(3):
        assert len(await search(web)) == 1
    assert (first.asked, second.asked) == (1, 3)


async def test_a_dead_provider_is_left_alone_after_five_failures() -> None:
    first, second = Fake("first", SearchUnavailable("down")), Fake("second", [PAGE])
    web = chain(first, second)
    for _ in range(8):
        assert len(await search(web)) == 1
    assert (first.asked, second.asked) == (5, 8)


async def test_a_spent_allowance_leads_to_the_next() -> None:
    first, second = Fake("first", [PAGE]), Fake("second", [PAGE])
    web = chain(first, second, per_minute=2)
    for _ in range(4):
        await search(web)
    assert (first.asked, second.asked) == (2, 2)
    with pytest.raises(SearchUnavailable, match="CAIRN_WEB_PER_MINUTE"):
        await search(web)


def test_allowances_come_back() -> None:
    now = 0.0
    allowance = Allowance(2, 3, clock=lambda: now)
    taken = []
    for now in (0.0, 1.0, 2.0, 59.0, 60.0, 61.0, 86_399.0, 86_400.0, 86_401.0):  # noqa: B007  the clock reads it
        taken.append(allowance.take())
    # Two in the first minute; the third of the day when the first is a minute old; the next when it is a day old.
    assert taken == [True, True, False, False, True, False, False, True, True]


def test_without_bounds_everything_is_allowed() -> None:
    allowance = Allowance(None, None)
    assert all(allowance.take() for _ in range(1_000))


async def test_a_bug_is_not_taken_for_a_provider_that_is_away() -> None:
    with pytest.raises(ZeroDivisionError):
        await search(chain(Fake("broken", ZeroDivisionError("oops")), Fake("second", [PAGE])))


async def test_closing_closes_all() -> None:
    fakes = [Fake("a", []), Fake("b", [])]
    await chain(*fakes).aclose()
    assert all(fake.closed for fake in fakes)
