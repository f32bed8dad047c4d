"""What only the embedded index promises: one owner, and nothing lost by a kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.clients.index import open_index
from shared.clients.index.edge import EdgeIndex
from shared.contracts import Principal
from shared.errors import IndexMismatch, Misconfigured, VectorStoreUnavailable
from shared.settings import IndexSettings
from tests.clients.test_index_support import DIMENSION, directory, document, place, put, query, search, texts_of

WRITER = """
import asyncio, sys
from pathlib import Path
from shared.clients.index.edge import EdgeIndex
from tests.clients.test_index_support import document, put

async def main():
    index = EdgeIndex(Path(sys.argv[1]), fingerprint="bag-of-words")
    for number in range(10_000):
        await put(index, "docs", document(f"d{number}"), f"tent {number}", "peg")
        print(number, flush=True)

asyncio.run(main())
"""


@pytest.fixture
def path() -> Iterator[Path]:
    with directory() as path:
        yield path


def killed_writer(path: Path) -> int:
    """Lets another process put documents and kills it; answers the number of the last one acknowledged."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        while int(writer.stdout.readline()) < 20:
            pass
        with pytest.raises(Misconfigured, match=f"process {writer.pid}"):
            EdgeIndex(path, fingerprint="bag-of-words")
        writer.kill()
        *_, last, _ = ["20", *writer.stdout.read().split("\n")]
    return int(last)


async def test_a_kill_loses_nothing_acknowledged_and_frees_the_directory(path: Path) -> None:
    acknowledged = killed_writer(path)
    index = EdgeIndex(path, fingerprint="bag-of-words")
    for number in range(acknowledged + 1):
        assert await index.count(place("docs", f"d{number}")) == 2
    [by_words] = await search(index, "docs", query(f"tent {acknowledged}", dense=False))
    assert by_words[0].document_id == f"d{acknowledged}"
    await index.aclose()


async def test_one_directory_has_one_owner(path: Path) -> None:
    first = EdgeIndex(path, fingerprint=None)
    with pytest.raises(Misconfigured, match=f"in use by process {os.getpid()}.*CAIRN_QDRANT_URL"):
        EdgeIndex(path, fingerprint=None)
    await first.aclose()
    await first.aclose()
    await EdgeIndex(path, fingerprint=None).aclose()


async def test_the_default_lies_under_the_data_directory(path: Path) -> None:
    index = open_index(IndexSettings(qdrant_url=None, qdrant_path=None), path, fingerprint="bag-of-words")
    assert isinstance(index, EdgeIndex)
    await put(index, "docs", document(), "tent")
    assert index.version == "bag-of-words+bm25-1"
    await index.aclose()
    assert json.loads((path / "qdrant/docs/manifest.json").read_text())["dimension"] == DIMENSION


def test_a_directory_that_is_none_is_explained(path: Path) -> None:
    (path / "file").write_text("")
    with pytest.raises(Misconfigured, match="CAIRN_QDRANT_PATH"):
        EdgeIndex(path / "file", fingerprint=None)


async def test_a_creation_cut_short_is_begun_anew(path: Path) -> None:
    leftover = path / "docs/shard.new/segments/half"
    leftover.mkdir(parents=True)
    (path / "docs/manifest.json").write_text('{"fingerprint": "of another day", "dimension": 3}')
    index = EdgeIndex(path, fingerprint="bag-of-words")
    assert await search(index, "docs", query("tent")) == []
    await put(index, "docs", document(), "tent")
    assert texts_of((await search(index, "docs", query("tent")))[0]) == ["tent"]
    await index.aclose()


async def test_a_foreign_directory_is_refused(path: Path) -> None:
    (path / "docs/shard").mkdir(parents=True)
    index = EdgeIndex(path, fingerprint="bag-of-words")
    with pytest.raises(IndexMismatch, match="not made by Cairn"):
        await search(index, "docs", query("tent"))
    await index.aclose()


async def test_broken_files_are_reported_with_their_place(path: Path) -> None:
    (path / "docs/shard").mkdir(parents=True)
    (path / "docs/shard/edge_config.json").write_text("{")
    (path / "docs/manifest.json").write_text(f'{{"fingerprint": "bag-of-words", "dimension": {DIMENSION}}}')
    index = EdgeIndex(path, fingerprint="bag-of-words")
    with pytest.raises(VectorStoreUnavailable, match=f"the embedded index in {path} failed"):
        await search(index, "docs", query("tent"))
    await index.aclose()


async def test_clearing_away_what_was_deleted_keeps_the_rest(path: Path) -> None:
    index = EdgeIndex(path, fingerprint="bag-of-words")
    for number in range(4):
        await put(index, "docs", document(f"d{number}", tenant="t"), *(f"tent {number} {peg}" for peg in range(400)))
    for number in range(3):
        assert await index.delete(place("docs", f"d{number}", tenant="t")) == 400
    await index.aclose()
    index = EdgeIndex(path, fingerprint="bag-of-words")
    by_meaning, by_words = await search(index, "docs", query("tent 3"), principal=Principal(tenant="t"), limit=1000)
    assert len(by_meaning) == len(by_words) == 400
    assert {passage.document_id for passage in by_words} == {"d3"}
    await index.aclose()
