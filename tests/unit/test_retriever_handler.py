"""retrieve(): a Retrieve in, a Grade out, over a real embedded index and an embedder without a model."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from services.retriever.decision import EMBEDDER_DOWN, NO_EMBEDDER, NO_VECTORS, RetrievalPolicy
from services.retriever.handler import retrieve
from shared.clients.index.edge import EdgeIndex
from shared.contracts import Evidence, Filters, Header, PassageGrade, Principal, Question, Retrieve
from shared.errors import EmbedderUnavailable, IndexMismatch, InvalidModelReply
from tests.clients.test_index_support import BagOfWords, directory, document, put
from tests.unit.test_retriever import passage

POLICY = RetrievalPolicy("docs")


@pytest.fixture
async def index() -> AsyncIterator[EdgeIndex]:
    with directory() as path:
        index = EdgeIndex(path, fingerprint="bag-of-words")
        yield index
        await index.aclose()


def command(*queries: str, hyde: str | None = None, principal: Principal | None = None, **asked: object) -> Retrieve:
    header = Header(
        job_id="j", entry_id="1-0", submitted_at=0.0, deadline=60.0, hop=1, principal=principal or Principal()
    )
    question = Question.model_validate({"question": queries[0], "collection": "docs"} | asked)
    return Retrieve(header=header, asked=question, route="factual", queries=queries, hyde=hyde)


async def test_passages_of_all_queries_go_to_the_grader_with_their_trail(index: EdgeIndex) -> None:
    await put(index, "docs", document("tents"), "Tents are returned within thirty days.")
    await put(index, "docs", document("pegs"), "Pegs are made of steel.")
    kept = (Evidence(passage=passage("old"), grade=PassageGrade(), strips=()),)
    msg = command("return tents", "steel pegs").model_copy(update={"evidence": kept})

    grade = await retrieve(msg, index=index, embedder=BagOfWords(), policy=POLICY)

    assert {(one.document_id, one.query) for one in grade.passages} == {("tents", 0), ("pegs", 1)}
    assert all(one.similarity is not None for one in grade.passages)
    assert (grade.queries, grade.route, grade.evidence) == (msg.queries, "factual", kept)
    [step] = grade.header.trail
    assert (step.hop, step.route, step.queries) == (1, "factual", msg.queries)
    assert [(one.passage_id, one.query) for one in step.passages] == [
        (one.passage_id, one.query) for one in grade.passages
    ]
    assert grade.header.versions == {"index": "bag-of-words+bm25-1"}
    assert grade.header.degraded == ()


async def test_everything_is_embedded_in_one_call_and_hyde_only_by_its_meaning(index: EdgeIndex) -> None:
    await put(index, "docs", document("a"), "alpha beta")
    await put(index, "docs", document("b"), "gamma delta")
    embedder = BagOfWords()
    grade = await retrieve(command("omega", hyde="gamma delta", top_k=1), index=index, embedder=embedder, policy=POLICY)
    assert embedder.embedded == ["omega", "gamma delta"]
    [found] = grade.passages
    assert (found.document_id, found.query) == ("b", 0)
    assert found.similarity is not None
    assert found.similarity < 0.9  # with the question; its likeness to the made-up answer is 1


async def test_with_the_embedder_down_words_still_find(index: EdgeIndex) -> None:
    await put(index, "docs", document(), "tent")
    embedder = BagOfWords()
    embedder.failure = EmbedderUnavailable("down")
    grade = await retrieve(command("tent"), index=index, embedder=embedder, policy=POLICY)
    assert [one.text for one in grade.passages] == ["tent"]
    assert grade.header.degraded == (EMBEDDER_DOWN,)


async def test_without_an_embedder_words_find_and_the_outcome_says_so(index: EdgeIndex) -> None:
    await put(index, "docs", document(), "tent")
    grade = await retrieve(command("tent"), index=index, embedder=None, policy=POLICY)
    assert len(grade.passages) == 1
    assert grade.header.degraded == (NO_EMBEDDER,)


async def test_a_collection_without_vectors_is_marked(index: EdgeIndex) -> None:
    await put(index, "docs", document(), "tent", dense=False)
    grade = await retrieve(command("tent"), index=index, embedder=BagOfWords(), policy=POLICY)
    assert len(grade.passages) == 1
    assert grade.header.degraded == (NO_VECTORS,)


async def test_other_failures_of_the_embedder_are_not_hidden(index: EdgeIndex) -> None:
    embedder = BagOfWords()
    embedder.failure = InvalidModelReply("NaN")
    with pytest.raises(InvalidModelReply):
        await retrieve(command("tent"), index=index, embedder=embedder, policy=POLICY)


async def test_a_job_for_the_web_searches_nothing_here(index: EdgeIndex) -> None:
    await put(index, "docs", document(), "tent")
    embedder = BagOfWords()
    grade = await retrieve(command("tent", web="only"), index=index, embedder=embedder, policy=POLICY)
    assert (grade.passages, embedder.embedded, grade.header.degraded) == ((), [], ())
    assert len(grade.header.trail) == 1


async def test_the_default_collection_and_an_unknown_one(index: EdgeIndex) -> None:
    await put(index, "docs", document(), "tent")
    for collection, count in ((None, 1), ("docs", 1), ("elsewhere", 0)):
        msg = command("tent", collection=collection)
        grade = await retrieve(msg, index=index, embedder=BagOfWords(), policy=POLICY)
        assert (len(grade.passages), grade.header.degraded) == (count, ())


async def test_rights_filters_and_top_k_hold(index: EdgeIndex) -> None:
    await put(index, "docs", document("open"), *(f"tent {number}" for number in range(9)))
    await put(index, "docs", document("closed", acl=("hr",)), "tent for staff")
    for principal, filters, expected in (
        (Principal(), Filters(), {"open"}),
        (Principal(roles=("hr",)), Filters(document_ids=("closed",)), {"closed"}),
        (Principal(tenant="other"), Filters(), set()),
    ):
        msg = command("tent", principal=principal, filters=filters, top_k=4)
        grade = await retrieve(msg, index=index, embedder=BagOfWords(), policy=POLICY)
        assert len(grade.passages) <= 4
        assert {one.document_id for one in grade.passages} == expected


async def test_a_mismatch_is_told_not_hidden(index: EdgeIndex) -> None:
    await put(index, "docs", document(), "tent")
    other = EdgeIndex(index._path / "other", fingerprint="bag-of-words")
    await put(other, "docs", document(), "tent")
    await other.aclose()
    other = EdgeIndex(index._path / "other", fingerprint="new-model")
    with pytest.raises(IndexMismatch):
        await retrieve(command("tent"), index=other, embedder=BagOfWords(), policy=POLICY)
    await other.aclose()
