"""ingest(): parts in any order, twice, after a crash; old editions leave, and nothing is embedded for nothing."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence

import pytest

from services.retriever import ingest as module
from services.retriever.ingest import ingest
from shared.clients.index import GONE, Place
from shared.clients.index.edge import EdgeIndex
from shared.contracts import Document, Ingest, Ingested, Principal
from shared.errors import EmbedderUnavailable
from tests.clients.test_index_support import BagOfWords, directory, document, drafts, place, query, search


class Desk:
    """An index with its embedder, and ingestion in one line."""

    def __init__(self, index: EdgeIndex) -> None:
        self.index = index
        self.embedder: BagOfWords | None = BagOfWords()

    async def send(self, msg: Ingest) -> Ingested:
        return await ingest(msg, index=self.index, embedder=self.embedder, default_collection="docs")

    async def statuses(self, messages: Sequence[Ingest]) -> list[str]:
        return [(await self.send(msg)).status for msg in messages]

    async def texts(self, **principal: object) -> list[str]:
        found = await search(
            self.index, "docs", query("tent", dense=False), principal=Principal.model_validate(principal), limit=100
        )
        return sorted(one.text for ranking in found for one in ranking)

    def embedded(self) -> list[str]:
        """What was embedded since the last call."""
        assert self.embedder is not None
        texts, self.embedder.embedded = self.embedder.embedded, []
        return texts


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    with directory() as path:
        index = EdgeIndex(path, fingerprint="bag-of-words")
        yield Desk(index)
        await index.aclose()


def parts(owner: Document, *texts: str, size: int = 100, submitted_at: float = 1.0) -> list[Ingest]:
    passages = drafts(*texts)
    pieces = [passages[start : start + size] for start in range(0, len(passages), size)] or [()]
    return [
        Ingest(
            run_id="run",
            document=owner,
            part=number,
            parts=len(pieces),
            passage_total=len(passages),
            passages=piece,
            submitted_at=submitted_at,
        )
        for number, piece in enumerate(pieces)
    ]


async def test_a_document_is_indexed_left_alone_and_replaced(desk: Desk) -> None:
    first = await desk.send(parts(document(title="Shop"), "tent 1", "tent 2")[0])
    assert (first.document_id, first.status, first.passages) == ("guide", "indexed", 2)
    assert first.seconds > 0
    assert desk.embedded() == ["Shop\ntent 1", "Shop\ntent 2"]

    assert await desk.statuses(parts(document(title="Shop"), "tent 1", "tent 2")) == ["unchanged"]
    assert desk.embedded() == []

    assert await desk.statuses(parts(document(title="Shop", content_hash="v2"), "tent 3")) == ["replaced"]
    assert await desk.texts() == ["tent 3"]


@pytest.mark.parametrize("seed", range(4))
async def test_parts_come_in_any_order_and_twice(desk: Desk, seed: int) -> None:
    dice = random.Random(seed)
    await desk.statuses(parts(document(content_hash="v0"), "tent old", "tent older"))
    texts = [f"tent {number}" for number in range(7)]
    messages = parts(document(content_hash="v1"), *texts, size=2)
    order = [*messages, *dice.sample(messages, 2)]
    dice.shuffle(order)
    seen: set[int] = set()
    for msg in order:
        status = (await desk.send(msg)).status
        complete = len(seen | {msg.part}) == len(messages)
        if not complete:
            assert status == "part"
            assert await desk.texts() == ["tent old", "tent older"]  # until the new edition is whole
        else:
            assert status == ("unchanged" if len(seen) == len(messages) else "replaced")
        seen.add(msg.part)
    assert await desk.texts() == texts
    assert len(desk.embedded()) == 2 + len(texts)


async def test_a_crash_between_writing_and_clearing_is_made_good(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk.statuses(parts(document(content_hash="v0"), "tent old"))
    [msg] = parts(document(content_hash="v1"), "tent new")
    with monkeypatch.context() as crash:
        crash.setattr(desk.index, "delete", _fail)
        with pytest.raises(RuntimeError):
            await desk.send(msg)
    desk.embedded()
    assert (await desk.send(msg)).status == "replaced"
    assert (await desk.texts(), desk.embedded()) == (["tent new"], [])


async def test_new_rights_take_effect_though_the_content_stays(desk: Desk) -> None:
    await desk.statuses(parts(document(), "tent 1", "tent 2"))
    assert await desk.statuses(parts(document(acl=("hr",)), "tent 1", "tent 2")) == ["replaced"]
    assert await desk.texts() == []
    assert await desk.texts(roles=("hr",)) == ["tent 1", "tent 2"]
    assert await desk.index.count(place("docs")) == 2


async def test_new_rights_of_a_long_document_take_effect_at_once(desk: Desk) -> None:
    texts = [f"tent {number}" for number in range(5)]
    await desk.statuses(parts(document(), *texts, size=2))
    desk.embedded()
    closed = parts(document(acl=("hr",), valid_to="2020-01-01"), *texts, size=2)
    assert (await desk.send(closed[0])).status == "replaced"  # its text is whole already
    assert await desk.statuses(closed[1:]) == ["unchanged", "unchanged"]
    assert (await desk.texts(), await desk.texts(roles=("hr",)), desk.embedded()) == ([], [], [])
    assert await desk.statuses(parts(document(acl=("hr",)), *texts, size=2)) == ["replaced", "unchanged", "unchanged"]
    assert await desk.texts(roles=("hr",)) == texts


async def test_the_later_version_wins_whichever_arrives_last(desk: Desk) -> None:
    old = parts(document(content_hash="v1"), "tent old", "tent older", size=1, submitted_at=1.0)
    new = parts(document(content_hash="v2"), "tent new", submitted_at=2.0)
    assert (await desk.send(old[0])).status == "part"
    assert await desk.texts() == []
    assert await desk.statuses([*new, old[1], old[0]]) == ["replaced", "outdated", "outdated"]
    assert await desk.texts() == ["tent new"]
    removal = Ingest(run_id="run", action="delete", document=document(content_hash=""), submitted_at=1.5)
    assert (await desk.send(removal)).status == "absent"
    assert await desk.texts() == ["tent new"]


async def test_a_version_that_arrives_after_a_later_removal_stays_out(desk: Desk) -> None:
    put = parts(document(), "tent", submitted_at=1.0)
    removal = Ingest(run_id="run", action="delete", document=document(content_hash=""), submitted_at=2.0)
    await desk.statuses(parts(document("other"), "tent of another"))
    assert await desk.statuses([*put, removal, *put, removal]) == ["indexed", "deleted", "outdated", "absent"]
    assert await desk.texts() == ["tent of another"]
    assert await desk.index.documents("docs", "public") == ["other"]
    info = await desk.index.info("docs")
    assert info is not None
    assert info.passages == 1
    assert await desk.statuses(parts(document(), "tent again", submitted_at=3.0)) == ["indexed"]
    assert await desk.texts() == ["tent again", "tent of another"]
    assert await desk.index.count(place("docs"), GONE) == 0


async def test_a_removal_is_forgotten_after_a_day(desk: Desk) -> None:
    await desk.statuses(parts(document("other"), "tent"))
    for name, moment in (("guide", 0.0), ("guide2", 86_399.0), ("guide3", 86_401.0)):
        await desk.send(
            Ingest(run_id="run", action="delete", document=document(name, content_hash=""), submitted_at=moment)
        )
    assert await desk.index.count(Place("docs", "public"), GONE) == 2


async def test_rights_that_were_tightened_later_are_not_loosened_by_a_late_message(desk: Desk) -> None:
    public = parts(document(), "tent 1", "tent 2", size=1, submitted_at=1.0)
    closed = parts(document(acl=("hr",)), "tent 1", "tent 2", size=1, submitted_at=2.0)
    await desk.statuses([*public, *closed])
    assert await desk.statuses(public) == ["outdated", "outdated"]
    assert (await desk.texts(), await desk.texts(roles=("hr",))) == ([], ["tent 1", "tent 2"])


async def test_a_version_seen_again_is_as_late_as_that(desk: Desk) -> None:
    first, again = (parts(document(), "tent", submitted_at=moment) for moment in (10.0, 30.0))
    between = parts(document(content_hash="v2"), "tent between", submitted_at=20.0)
    assert await desk.statuses([*first, *again, *between]) == ["indexed", "unchanged", "outdated"]
    assert await desk.texts() == ["tent"]


async def test_documents_are_listed_page_by_page(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTED_AT_ONCE", 2)
    for name in ("shop/c", "shop/a", "other/x", "shop/b"):
        await desk.statuses(parts(document(name), "tent"))
    await desk.statuses(parts(document("shop/theirs", tenant="theirs"), "tent"))
    question = Ingest(run_id="run", action="list", document=document("shop/", content_hash=""))
    first = await desk.send(question)
    assert (first.status, first.documents) == ("listed", ("shop/a", "shop/b"))
    assert (await desk.send(question.model_copy(update={"after": "shop/b"}))).documents == ("shop/c",)


async def test_another_split_of_the_same_content_replaces_it(desk: Desk) -> None:
    await desk.statuses(parts(document(), "tent 1", "tent 2", "tent 3"))
    assert await desk.statuses(parts(document(), "tent 1 tent 2", "tent 3")) == ["replaced"]
    assert await desk.texts() == ["tent 1 tent 2", "tent 3"]
    assert await desk.statuses(parts(document(), "tent 1", "tent 2 tent 3")) == ["replaced"]
    assert await desk.texts() == ["tent 1", "tent 2 tent 3"]


async def test_an_emptied_document_leaves_nothing(desk: Desk) -> None:
    assert await desk.statuses(parts(document("blank"))) == ["unchanged"]
    await desk.statuses(parts(document(), "tent"))
    assert await desk.statuses(parts(document(content_hash="v2"))) == ["replaced"]
    assert await desk.texts() == []


async def test_a_removal_takes_only_the_tenant_s_own(desk: Desk) -> None:
    await desk.statuses([*parts(document(), "tent"), *parts(document(tenant="other"), "tent of others")])
    removal = Ingest(run_id="run", action="delete", document=document(content_hash=""))
    assert [((await desk.send(removal)).status), (await desk.send(removal)).status] == ["deleted", "absent"]
    assert await desk.texts() == []
    assert await desk.texts(tenant="other") == ["tent of others"]


async def test_documents_go_to_their_collection(desk: Desk) -> None:
    await desk.statuses(parts(document(collection="archive"), "tent"))
    assert await desk.index.count(place("archive")) == 1
    assert await desk.index.info("docs") is None


async def test_a_failing_embedder_leaves_the_index_as_it_was(desk: Desk) -> None:
    await desk.statuses(parts(document(), "tent old"))
    assert desk.embedder is not None
    desk.embedder.failure = EmbedderUnavailable("down")
    with pytest.raises(EmbedderUnavailable):
        await desk.send(parts(document(content_hash="v2"), "tent new")[0])
    assert await desk.texts() == ["tent old"]


async def test_without_an_embedder_words_are_indexed(desk: Desk) -> None:
    desk.embedder = None
    assert await desk.statuses(parts(document(), "tent")) == ["indexed"]
    info = await desk.index.info("docs")
    assert info is not None
    assert (info.passages, info.dimension) == (1, None)


async def _fail(*_: object) -> int:
    raise RuntimeError("killed here")
