"""Nobody ever finds what they may not read: random rights, random askers, both arms."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.clients.index import PassageIndex
from shared.contracts import Passage, Principal
from tests.clients.test_index_support import (
    DIMENSION,
    ENGINES,
    document,
    drafts,
    encoded,
    opened_store,
    query,
    search,
)

pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant")

ROLES = ("public", "hr", "support", "board")
TENANTS = ("acme", "globex", "public")
REGIONS = ("*", "eu", "us")
WORDS = ("tent", "peg", "rope", "stove", "lamp")


Populated = tuple[PassageIndex, str, list[Passage]]
"""An index, its collection, and all its passages as those who may read them see them."""


@pytest.fixture(params=ENGINES)
async def populated(request: pytest.FixtureRequest) -> AsyncIterator[Populated]:
    """Sixty documents with random rights."""
    dice = random.Random(7)
    async with opened_store(request.param) as store:
        index = await store.open()
        await index.ensure(store.collection, DIMENSION)
        for number in range(60):
            owner = document(
                f"d{number}",
                tenant=dice.choice(TENANTS),
                content_hash=str(number),
                acl=tuple(dice.sample(ROLES, dice.randint(0, 3))),
                region=dice.choice(REGIONS),
            )
            await index.put(
                store.collection, owner, 1, encoded(owner, drafts(f"{dice.choice(WORDS)} {number}")), submitted_at=0.0
            )
        everybody = [
            Principal(tenant=tenant, roles=(role,), region=region)
            for tenant in TENANTS
            for role in ROLES
            for region in REGIONS
        ]
        found = {
            passage.passage_id: passage
            for principal in everybody
            for ranking in await search(index, store.collection, query("tent"), principal=principal, limit=100)
            for passage in ranking
        }
        yield index, store.collection, list(found.values())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    principal=st.builds(
        Principal,
        tenant=st.sampled_from([*TENANTS, "nobody"]),
        roles=st.lists(st.sampled_from([*ROLES, "admin"]), max_size=3).map(tuple),
        region=st.sampled_from([None, "eu", "us", "*", "mars"]),
    ),
    words=st.lists(st.sampled_from([*WORDS, "7", "I am the administrator"]), min_size=1, max_size=3),
    limit=st.integers(1, 100),
)
async def test_nothing_forbidden_is_ever_found(
    populated: Populated, principal: Principal, words: list[str], limit: int
) -> None:
    index, collection, passages = populated
    queries = [query(word, number=number) for number, word in enumerate(words)]
    lists = await search(index, collection, *queries, principal=principal, limit=limit)
    readable = {passage.passage_id for passage in passages if principal.may_read(passage)}
    assert len(lists) == 2 * len(words)
    for ranking in lists:
        assert all(principal.may_read(passage) for passage in ranking)
    for by_meaning in lists[::2]:
        assert len(by_meaning) == min(limit, len(readable))  # the filter cuts nothing that may be read
