"""The contract of PassageIndex: the embedded engine, qdrant-client's local mode, and a server if one is named."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest

from shared.clients.index import (
    Above,
    AnyOf,
    NoneOf,
    PassageIndex,
    QueryVectors,
    edition_of,
    passage_digest,
    passage_id_of,
)
from shared.contracts import Filters, Passage, Principal
from shared.errors import IndexMismatch
from tests.clients.test_index_support import (
    DIMENSION,
    ENGINES,
    Store,
    document,
    drafts,
    encoded,
    opened_store,
    place,
    put,
    query,
    search,
    texts_of,
    vector_of,
)

pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant")


@pytest.fixture(params=ENGINES)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    async with opened_store(request.param) as store:
        yield store


@pytest.fixture
async def index(store: Store) -> PassageIndex:
    return await store.open()


async def test_both_arms_find_and_fill_the_passage(store: Store, index: PassageIndex) -> None:
    guide = document(title="Tents", acl=("public", "support"), owner="shop", valid_from="2026-01-01")
    await put(index, store.collection, guide, "Returns take thirty days.", "Pegs are made of steel.")

    by_meaning, by_words = await search(index, store.collection, query("how long do returns take", number=2))

    assert texts_of(by_meaning) == ["Returns take thirty days.", "Pegs are made of steel."]
    assert texts_of(by_words) == ["Returns take thirty days."]
    [found] = by_words
    assert found == Passage(
        passage_id=passage_id_of(guide, 0),
        document_id="guide",
        title="Tents",
        uri="file:///guide",
        text="Returns take thirty days.",
        language="en",
        acl=("public", "support"),
        query=2,
        score=found.score,
        similarity=by_meaning[0].similarity,
    )
    assert found.score > 0


async def test_every_query_and_arm_has_its_list(store: Store, index: PassageIndex) -> None:
    await put(index, store.collection, document(), "red tents", "blue tents", "green pegs")
    lists = await search(
        index,
        store.collection,
        query("red", number=0, dense=False),
        query("blue", number=1),
        query("", number=2),
        limit=1,
    )
    assert [(ranking[0].query, ranking[0].text) for ranking in lists] == [
        (0, "red tents"),
        (1, "blue tents"),
        (1, "blue tents"),
        (2, lists[3][0].text),
    ]
    assert all(len(ranking) == 1 for ranking in lists)


async def test_what_only_words_found_has_its_similarity_too(store: Store, index: PassageIndex) -> None:
    near, far = "alpha beta gamma", "alpha delta epsilon zeta eta theta"
    await put(index, store.collection, document(), near, far)
    [by_meaning], [by_words] = await search(
        index,
        store.collection,
        query("alpha beta gamma", words=False),
        query("zeta", dense=False, number=1),
        limit=1,
    )
    assert (by_meaning.text, by_words.text) == (near, far)
    assert by_words.similarity == pytest.approx(_cosine("alpha beta gamma", far), abs=1e-5)


async def test_similarity_is_the_greatest_over_the_queries_but_not_the_made_up_one(
    store: Store, index: PassageIndex
) -> None:
    await put(index, store.collection, document(), "alpha beta gamma")
    hyde = QueryVectors(0, None, vector_of("alpha beta gamma"), hypothetical=True)
    lists = await search(
        index, store.collection, query("alpha nothing else", words=False), query("alpha beta", words=False), hyde
    )
    expected = pytest.approx(_cosine("alpha beta", "alpha beta gamma"), abs=1e-5)
    assert [ranking[0].similarity for ranking in lists] == [expected] * 3
    assert lists[2][0].score == pytest.approx(1.0, abs=1e-5)


async def test_identifiers_are_found_whole_and_in_parts_across_languages(store: Store, index: PassageIndex) -> None:
    for number, text in enumerate(
        ["The heater NK-T2-310 shows E1234.", "The heater NK-T2-320 shows E1235.", "Heaters are checked on 2026-11-30."]
    ):
        await put(index, store.collection, document(f"d{number}"), text)
    for asked, number in (("Что значит E1234?", 0), ("NK-T2-320 en panne", 1), ("2026-11-30", 2), ("T2 320", 1)):
        [by_words] = await search(index, store.collection, query(asked, dense=False, language="ru"))
        assert by_words[0].document_id == f"d{number}", asked


@pytest.mark.parametrize(
    ("language", "text", "asked"),
    [
        ("ru", "Возврат палатки возможен в течение месяца.", "возвраты палаток"),
        ("ru", "Ещё одна ёлка", "елки"),
        ("fr", "La résiliation est gratuite pour les étudiants.", "resilier etudiant"),
        ("en", "The policies were returned.", "return policy"),
    ],
)
async def test_words_are_found_in_other_forms(
    store: Store, index: PassageIndex, language: str, text: str, asked: str
) -> None:
    await put(index, store.collection, document(language=language), text)
    [by_words] = await search(index, store.collection, query(asked, dense=False, language=language))
    assert texts_of(by_words) == [text]


async def test_two_tenants_may_have_the_same_document(store: Store, index: PassageIndex) -> None:
    ours, theirs = document(tenant="ours"), document(tenant="theirs")
    await put(index, store.collection, ours, "our secret")
    await put(index, store.collection, theirs, "their secret")

    for tenant, text in (("ours", "our secret"), ("theirs", "their secret")):
        for ranking in await search(index, store.collection, query("secret"), principal=Principal(tenant=tenant)):
            assert texts_of(ranking) == [text]
    assert await index.delete(place(store.collection, tenant="ours")) == 1
    assert await index.count(place(store.collection, tenant="theirs")) == 1


async def test_rarity_is_counted_among_what_the_asker_may_read(store: Store, index: PassageIndex) -> None:
    await put(index, store.collection, document(), "rare tent", "common tent")
    before = await search(index, store.collection, query("rare tent", dense=False))
    await put(index, store.collection, document("secrets", acl=("board",)), *(f"rare {number}" for number in range(9)))
    await put(index, store.collection, document("others", tenant="other"), *(f"rare {number}" for number in range(9)))
    after = await search(index, store.collection, query("rare tent", dense=False))
    assert [one.score for one in before[0]] == pytest.approx([one.score for one in after[0]])


async def test_filters_narrow(store: Store, index: PassageIndex) -> None:
    await put(index, store.collection, document("a", language="en"), "tent")
    await put(index, store.collection, document("b", language="fr"), "tent")
    for filters, expected in (
        (Filters(document_ids=("b",)), ["b"]),
        (Filters(languages=("en", "ru")), ["a"]),
        (Filters(document_ids=("b",), languages=("en",)), []),
    ):
        for ranking in await search(index, store.collection, query("tent"), filters=filters):
            assert [passage.document_id for passage in ranking] == expected


async def test_an_unknown_collection_is_empty(store: Store, index: PassageIndex) -> None:
    assert await search(index, store.collection, query("anything")) == []
    assert await index.count(place(store.collection)) == 0
    assert await index.digests(store.collection, [passage_id_of(document(), 0)]) == {}
    assert await index.vectors(store.collection, [passage_id_of(document(), 0)]) == {}
    assert await index.delete(place(store.collection)) == 0
    assert await index.documents(store.collection, "public") == []
    assert await index.info(store.collection) is None


async def test_putting_twice_changes_nothing_and_old_editions_leave(store: Store, index: PassageIndex) -> None:
    old, new = document(content_hash="v1"), document(content_hash="v2")
    await put(index, store.collection, old, "one", "two", "three")
    await put(index, store.collection, document("another"), "one")
    edition = await put(index, store.collection, new, "one", "four")
    assert await put(index, store.collection, new, "one", "four") == edition

    here, others = place(store.collection), NoneOf("edition", (edition,))
    assert await index.count(here) == 5
    assert await index.count(here, AnyOf("edition", (edition,))) == 2
    assert await index.delete(here, others) == 3
    assert await index.delete(here, others) == 0
    ids = [passage_id_of(new, number) for number in range(3)]
    assert await index.digests(store.collection, ids) == {
        passage_id: passage_digest(new, draft) for passage_id, draft in zip(ids[:2], drafts("one", "four"), strict=True)
    }
    info = await index.info(store.collection)
    assert info is not None
    assert (info.passages, info.fingerprint, info.dimension) == (3, "bag-of-words", DIMENSION)


async def test_another_embedder_is_refused(store: Store, index: PassageIndex) -> None:
    await put(index, store.collection, document(), "tent")
    with pytest.raises(IndexMismatch, match="ingest into a new collection, or set CAIRN_EMBED_"):
        await index.ensure(store.collection, DIMENSION + 1)
    with pytest.raises(IndexMismatch):
        await search(index, store.collection, QueryVectors(0, None, np.ones(3, dtype=np.float32)))
    other = await store.open("another-model")
    with pytest.raises(IndexMismatch, match=r"bag-of-words.*another-model"):
        await search(other, store.collection, query("tent"))
    with pytest.raises(IndexMismatch):
        await other.ensure(store.collection, DIMENSION)


async def test_without_an_embedder_words_still_find_but_nothing_is_put(store: Store, index: PassageIndex) -> None:
    await put(index, store.collection, document(), "tent")
    wordy = await store.open(None)
    [by_words] = await search(wordy, store.collection, query("tent", dense=False))
    assert texts_of(by_words) == ["tent"]
    with pytest.raises(IndexMismatch, match="no embedder"):
        await wordy.ensure(store.collection, None)


async def test_a_collection_without_vectors_is_searched_by_words(store: Store) -> None:
    wordy = await store.open(None)
    await put(wordy, store.collection, document(), "tent", "—", dense=False)
    index = await store.open()
    [by_words] = await search(index, store.collection, query("tent"))
    assert [(passage.text, passage.similarity) for passage in by_words] == [("tent", None)]
    with pytest.raises(IndexMismatch, match="no embedder"):
        await index.ensure(store.collection, DIMENSION)


def _cosine(one: str, other: str) -> float:
    a, b = vector_of(one), vector_of(other)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


async def test_a_staged_document_is_found_when_it_is_published_with_its_rights(
    store: Store, index: PassageIndex
) -> None:
    guide = document(acl=("hr",), valid_from="2026-01-01", owner="shop")
    passages = encoded(guide, drafts("tent one", "tent two"))
    await index.ensure(store.collection, DIMENSION)
    await index.put(store.collection, guide, 2, passages[:1], submitted_at=1.0, state="staged")
    hr = Principal(roles=("hr",))
    assert [texts_of(found) for found in await search(index, store.collection, query("tent"), principal=hr)] == [[], []]

    await index.put(store.collection, guide, 2, passages[1:], submitted_at=1.0, state="staged")
    public = guide.model_copy(update={"acl": ("public",)})
    await index.publish(place(store.collection), edition_of(guide, 2), public, submitted_at=2.0)
    for found in await search(index, store.collection, query("tent")):
        assert sorted(texts_of(found)) == ["tent one", "tent two"]
    assert await index.count(place(store.collection), Above("submitted_at", 1.0)) == 2
    assert await index.count(place(store.collection), Above("submitted_at", 2.0)) == 0


async def test_of_two_versions_only_the_later_one_is_found(store: Store, index: PassageIndex) -> None:
    await put(index, store.collection, document(content_hash="new"), "tent new", submitted_at=2.0)
    await put(index, store.collection, document(content_hash="old"), "tent old", "peg old", submitted_at=1.0)
    await put(index, store.collection, document("another"), "tent of another")
    for found in await search(index, store.collection, query("tent peg")):
        assert sorted(texts_of(found)) == ["tent new", "tent of another"]


async def test_documents_are_found_while_they_hold(store: Store, index: PassageIndex) -> None:
    for name, start, end in (
        ("past", None, "2020-12-31"),
        ("now", "2021-01-01", None),
        ("future", "2999-01-01T00:00+02:00", "2999-12-31"),
        ("always", None, None),
    ):
        await put(index, store.collection, document(name, valid_from=start, valid_to=end), "tent")
    for moment, expected in (
        (None, {"now", "always"}),
        ("2020-12-31T23:59:59Z", {"past", "always"}),
        ("2021-01-01T00:00:00Z", {"now", "always"}),
        ("2998-12-31T21:59:00Z", {"now", "always"}),
        ("2998-12-31T22:00:00Z", {"now", "future", "always"}),
    ):
        filters = Filters.model_validate({"valid_at": moment})
        for found in await search(index, store.collection, query("tent"), filters=filters):
            assert {passage.document_id for passage in found} == expected, moment


async def test_documents_are_listed_by_tenant(store: Store, index: PassageIndex) -> None:
    for name, tenant in (("b", "ours"), ("a", "ours"), ("c", "theirs")):
        await put(index, store.collection, document(name, tenant=tenant), "tent", "peg")
    assert await index.documents(store.collection, "ours") == ["a", "b"]
    assert await index.documents(store.collection, "nobody") == []


async def test_vectors_are_those_of_the_passages(store: Store, index: PassageIndex) -> None:
    await put(index, store.collection, document(), "alpha beta", "gamma")
    ids = [passage_id_of(document(), number) for number in range(3)]
    found = await index.vectors(store.collection, ids)
    assert set(found) == set(ids[:2])
    expected = vector_of("alpha beta") / np.linalg.norm(vector_of("alpha beta"))
    assert found[ids[0]] == pytest.approx(expected, abs=1e-5)


async def test_a_baseline_lets_languages_meet_on_even_terms(store: Store, index: PassageIndex) -> None:
    # The Russian passages share all words with the question but one; what any Russian text shares is taken off.
    for number in range(3):
        await put(index, store.collection, document(f"ru{number}", language="ru"), f"alpha beta gamma {number}")
    await put(index, store.collection, document("en", language="en"), "alpha delta")
    await put(index, store.collection, document("de", language="de"), "epsilon zeta")
    asked = query("alpha beta gamma delta", words=False)
    [plain] = await search(index, store.collection, asked, limit=2)
    assert {passage.document_id for passage in plain} < {"ru0", "ru1", "ru2"}
    [even] = await search(index, store.collection, replace(asked, baselines={"ru": 0.8, "en": 0.2}), limit=2)
    assert even[0].document_id == "en"
    assert len(even) == 2
    assert even[0].score == pytest.approx((even[0].similarity or 0.0) - 0.2, abs=1e-5)
    [narrowed] = await search(
        index,
        store.collection,
        replace(asked, baselines={"ru": 0.8, "en": 0.2}),
        filters=Filters(languages=("ru", "de")),
        limit=10,
    )
    assert {passage.document_id for passage in narrowed} == {"ru0", "ru1", "ru2", "de"}
