"""Reading evaluation sets: what is understood, and that every error names its file and line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from evals.dataset import spread
from evals.lines import InvalidDataset
from evals.loading import load

SAMPLE = Path(__file__).parents[2] / "samples" / "eval"
SETS = Path(__file__).parents[2].parent / "shared" / "data"

PASSAGES = [
    {"id": "a", "title": "Tents", "text": "The tent Firn weighs 2 kg.", "lang": "en"},
    {"id": "b", "title": "Палатки", "text": "Палатку сушат в тени.", "lang": "ru"},
]
QUESTIONS = [{"id": "q1", "question": "How heavy is the tent Firn?"}, {"id": "q2", "question": "Где сушат палатку?"}]
QRELS = "query-id\tcorpus-id\tscore\nq1\ta\t1\nq1\tb\t0\nq2\tb\t2\n"


def jsonl(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A valid set, for each test to spoil."""
    (tmp_path / "corpus.jsonl").write_text(jsonl(PASSAGES), "utf-8")
    (tmp_path / "queries.jsonl").write_text(jsonl(QUESTIONS), "utf-8")
    (tmp_path / "qrels.tsv").write_text(QRELS, "utf-8")
    return tmp_path


def test_a_set_is_read(folder: Path) -> None:
    (folder / "pairs.tsv").write_text("query-id\tcorpus-id\tlabel\torigin\nq1\ta\t1\tgold\nq1\tb\t0\trandom\n")
    dataset = load(folder)
    first, second = dataset.questions
    assert [(gold.document_id, gold.score) for gold in first.gold] == [("a", 1)]
    assert second.gold[0].score == 2
    assert second.language == "ru"
    assert second.groups == ("all", "lang.ru", "pair.ru-ru")
    assert [(pair.relevant, pair.origin) for pair in dataset.pairs] == [(True, "gold"), (False, "random")]
    assert dataset.corpus.passage_count == 2


def test_each_line_of_a_corpus_is_one_passage(folder: Path) -> None:
    long = {"id": "c", "title": "Long", "text": "A sentence.\n\n" * 1000}
    (folder / "corpus.jsonl").write_text(jsonl([*PASSAGES, long]), "utf-8")
    (draft,) = load(folder).corpus.documents["c"].drafts
    assert draft.text == long["text"]


def test_questions_of_a_split_and_a_packed_corpus(folder: Path) -> None:
    (folder / "test").mkdir()
    for name in ("queries.jsonl", "qrels.tsv"):
        (folder / name).rename(folder / "test" / name)
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress((folder / "corpus.jsonl").read_bytes()))
    (folder / "corpus.jsonl").unlink()
    assert len(load(folder, "test").questions) == 2
    with pytest.raises(InvalidDataset, match=r"neither dev/queries\.jsonl nor queries\.jsonl"):
        load(folder)


def test_plain_beir(folder: Path) -> None:
    (folder / "queries.jsonl").write_text(jsonl([{"_id": q["id"], "text": q["question"]} for q in QUESTIONS]), "utf-8")
    (folder / "corpus.jsonl").write_text(jsonl([{"_id": p["id"], "text": p["text"]} for p in PASSAGES]), "utf-8")
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq2\tb\t1\n")
    (folder / "qrels.tsv").unlink()
    assert [question.id for question in load(folder, "test").questions] == ["q2"]
    with pytest.raises(InvalidDataset, match="no qrels for split 'dev'; there are test"):
        load(folder)


def test_the_same_content_has_the_same_fingerprint(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("other")
    for file in folder.iterdir():
        (elsewhere / file.name).write_bytes(file.read_bytes())
    assert load(folder).fingerprint == load(elsewhere).fingerprint
    (elsewhere / "qrels.tsv").write_text(QRELS.replace("q1\tb\t0", "q1\tb\t1"), "utf-8")
    assert load(folder).fingerprint != load(elsewhere).fingerprint
    assert load(folder).corpus.fingerprint == load(elsewhere).corpus.fingerprint


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("corpus.jsonl", jsonl(PASSAGES) + "{nonsense\n", r"corpus\.jsonl, line 3: .*JSON"),
        ("corpus.jsonl", jsonl([*PASSAGES, PASSAGES[0]]), r"corpus\.jsonl, line 3: id 'a' stood above"),
        ("corpus.jsonl", jsonl([{"id": "a", "title": "no text"}]), r"corpus\.jsonl, line 1: text: "),
        ("corpus.jsonl", jsonl([{**PASSAGES[0], "acl": "staff"}]), r"corpus\.jsonl, line 1: acl: "),
        ("corpus.jsonl", "\n", "there is no passage in it"),
        ("queries.jsonl", jsonl([*QUESTIONS, QUESTIONS[1]]), r"queries\.jsonl, line 3: id 'q2' stood above"),
        ("queries.jsonl", jsonl([{"id": "q1", "question": "  "}]), r"queries\.jsonl, line 1: question: "),
        (
            "queries.jsonl",
            jsonl([{**QUESTIONS[0], "gold": [{"path": "z"}]}]),
            r"queries\.jsonl, line 1: gold 'z' is not in the corpus",
        ),
        ("queries.jsonl", jsonl(QUESTIONS[:1]), r"qrels\.tsv, line 4: no question 'q2'"),
        ("qrels.tsv", "q1\ta\t1\n", r"qrels\.tsv, line 1: the header lacks query-id, corpus-id, score"),
        ("qrels.tsv", QRELS + "q2\tz\t1\n", r"qrels\.tsv, line 5: 'z' is relevant but not in the corpus"),
        ("qrels.tsv", QRELS + "q2\ta\tmuch\n", r"qrels\.tsv, line 5: score is 'much'"),
        ("qrels.tsv", QRELS + "q2\ta\n", r"qrels\.tsv, line 5: 2 fields where the header has 3"),
        ("qrels.tsv", QRELS + "q1\ta\t1\n", r"qrels\.tsv, line 5: 'q1' and 'a' stood above"),
        ("pairs.tsv", "query-id\tcorpus-id\tlabel\nq1\ta\t2\n", r"pairs\.tsv, line 2: label is 2"),
        ("pairs.tsv", "query-id\tcorpus-id\tlabel\nq9\ta\t1\n", r"pairs\.tsv, line 2: there is no question 'q9'"),
        ("pairs.tsv", "query-id\tcorpus-id\tlabel\nq1\tz\t1\n", r"pairs\.tsv, line 2: 'z' is not in the corpus"),
    ],
)
def test_errors_name_file_and_line(folder: Path, file: str, content: str, complaint: str) -> None:
    (folder / file).write_text(content, "utf-8")
    with pytest.raises(InvalidDataset, match=complaint):
        load(folder)


def test_a_file_that_is_not_text_or_not_packed(folder: Path) -> None:
    (folder / "qrels.tsv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidDataset, match="not UTF-8"):
        load(folder)
    (folder / "corpus.jsonl").rename(folder / "corpus.jsonl.gz")
    with pytest.raises(InvalidDataset, match="can't be read"):
        load(folder)


def test_there_is_one_corpus(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidDataset, match="no such directory"):
        load(tmp_path / "nowhere")
    (folder / "files").mkdir()
    with pytest.raises(InvalidDataset, match="exactly one of"):
        load(folder)


def test_documents_are_split_as_ingestion_does(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "faq.md").write_text("# FAQ\n\n## Tents\n\nDry them.\n\n## Ropes\n\nCut them.\n", "utf-8")
    (tmp_path / "files" / "broken.pdf").write_bytes(b"no PDF")
    gold = [{"path": "files/faq.md", "anchor": "ropes", "lang": "en", "body_lang": "en"}]
    (tmp_path / "queries.jsonl").write_text(jsonl([{"id": "q", "question": "And ropes?", "gold": gold}]), "utf-8")
    dataset = load(tmp_path)
    (question,) = dataset.questions
    passages = [*dataset.corpus.documents["files/faq.md"].passages()]
    assert [question.is_gold(passage) for passage in passages] == [False, True]
    assert all(question.gold[0].in_document(passage) for passage in passages)
    assert len(dataset.corpus.left_out) == 1
    (tmp_path / "pairs.tsv").write_text("query-id\tcorpus-id\tlabel\n")
    with pytest.raises(InvalidDataset, match="judged pairs need"):
        load(tmp_path)


def test_a_limit_spreads_over_the_file_and_takes_the_pairs_along() -> None:
    dataset = load(SAMPLE)
    kept = dataset.limited(5)
    places = [dataset.questions.index(question) for question in kept.questions]
    assert places == [0, 5, 10, 15, 20]
    assert {pair.query_id for pair in kept.pairs} == {question.id for question in kept.questions}
    assert dataset.limited(None) is dataset.limited(1000) is dataset
    assert [*spread(dataset.questions, len(dataset.questions))] == [*dataset.questions]


def test_the_sample_is_what_the_documentation_says() -> None:
    dataset = load(SAMPLE)
    assert {question.language for question in dataset.questions} == {"en", "fr", "ru"}
    assert {question.kind for question in dataset.questions} == {
        "fact",
        "identifier",
        "cross_language",
        "unanswerable",
    }
    texts = {name: each.drafts[0].text for name, each in dataset.corpus.documents.items()}
    for question in dataset.questions:
        assert question.answerable == bool(question.gold) == bool(question.answers)
        known = " ".join(texts[gold.document_id] for gold in question.gold)
        assert not question.answers or any(answer in known for answer in question.answers), question.id


@pytest.mark.parametrize("name", ["a_singlehop", "b_multihop", "c_ir", "d_fr_ru"])
def test_the_development_sets_are_read(name: str) -> None:
    if not (SETS / name).is_dir():
        pytest.skip(f"no evaluation data in {SETS}")
    dataset = load(SETS / name)
    assert dataset.pairs
    assert any(question.gold for question in dataset.questions)
