"""`cairn ingest` beside a real retriever: directories in, changes followed, what vanished gone."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.retriever.ingest import ingest
from shared.clients.index.edge import EdgeIndex
from shared.runtime.keys import Keys
from tests.clients.test_index_support import BagOfWords, directory, query, search
from tests.pipeline.conftest import Cli
from tests.support import bus
from tests.support.bus import running


@pytest.fixture
async def index(redis_url: str, keys: Keys) -> AsyncIterator[EdgeIndex]:
    """An index that a retriever writes as long as the test runs."""
    with directory() as path:
        index = EdgeIndex(path, fingerprint="bag-of-words")
        stage = bus.stage(ingest, max_workers=1, index=index, embedder=BagOfWords(), default_collection="docs")
        async with running([stage], redis_url, keys):
            yield index
        await index.aclose()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A small directory of documents in several formats."""
    folder = tmp_path / "shop"
    (folder / "sub").mkdir(parents=True)
    (folder / "tents.md").write_text("# Tents\n\nTents are returned within thirty days.\n", "utf-8")
    (folder / "sub" / "pegs.txt").write_text("Pegs are made of steel, and ropes of hemp.", "utf-8")
    records = [{"id": key, "title": key, "text": f"Stove number {key} burns gas."} for key in ("a", "b")]
    (folder / "stoves.jsonl").write_text("\n".join(map(json.dumps, records)), "utf-8")
    return folder


async def ingested(cli: Cli, *arguments: str) -> dict[str, Any]:
    found = await cli("ingest", *arguments, "--json")
    assert found.exit_code in (0, 1, 7), found.stderr
    report: dict[str, Any] = json.loads(found.stdout)
    return report


async def test_what_vanished_from_a_directory_vanishes_from_the_index(cli: Cli, index: EdgeIndex, shop: Path) -> None:
    elsewhere = shop.parent / "shop-elsewhere"
    shutil.copytree(shop, elsewhere)
    await ingested(cli, str(elsewhere))
    first = await ingested(cli, str(shop), "--sync")
    assert (first["documents"], first["errors"]) == ({"indexed": 4}, {})

    (shop / "tents.md").unlink()
    records = (shop / "stoves.jsonl").read_text("utf-8").splitlines()
    (shop / "stoves.jsonl").write_text(records[0], "utf-8")
    (shop / "sub" / "pegs.txt").write_text("Pegs are made of titanium.", "utf-8")
    second = await ingested(cli, str(shop), "--sync")

    assert second["documents"] == {"deleted": 2, "replaced": 1, "unchanged": 1}
    assert await index.documents("docs", "public") == [
        "shop-elsewhere/stoves.jsonl#a",
        "shop-elsewhere/stoves.jsonl#b",
        "shop-elsewhere/sub/pegs.txt",
        "shop-elsewhere/tents.md",
        "shop/stoves.jsonl#a",
        "shop/sub/pegs.txt",
    ]
    found = await search(index, "docs", query("titanium pegs", dense=False))
    assert found[0][0].text == "Pegs are made of titanium."


async def test_a_file_that_can_not_be_read_keeps_its_old_version(cli: Cli, index: EdgeIndex, shop: Path) -> None:
    await ingested(cli, str(shop), "--sync")
    (shop / "stoves.jsonl").write_text("{broken", "utf-8")
    (shop / "tents.md").write_bytes(b"\x00\x01\x02")
    report = await ingested(cli, str(shop), "--sync")
    assert len(report["errors"]) == 2
    assert len(await index.documents("docs", "public")) == 4


async def test_documents_of_other_tenants_are_synced_where_they_lie(cli: Cli, index: EdgeIndex, shop: Path) -> None:
    (shop / "secret.md").write_text("---\ntenant: acme\n---\n# Secret\n\nA tent for acme.\n", "utf-8")
    (shop / "gone.md").write_text("---\ntenant: acme\n---\n# Gone\n\nA peg for acme.\n", "utf-8")
    await ingested(cli, str(shop), "--sync")
    assert await index.documents("docs", "acme") == ["shop/gone.md", "shop/secret.md"]
    (shop / "gone.md").unlink()
    await ingested(cli, str(shop), "--sync")
    assert await index.documents("docs", "acme") == ["shop/secret.md"]
    assert len(await index.documents("docs", "public")) == 4


async def test_sync_refuses_what_could_empty_the_index(cli: Cli, index: EdgeIndex, shop: Path) -> None:
    await ingested(cli, str(shop))
    empty = shop.parent / "empty"
    empty.mkdir()
    for arguments, told in (
        ((str(shop / "tents.md"), "--sync"), "--sync takes directories"),
        ((str(shop), "--sync", "--delete"), "--sync takes directories"),
        ((str(shop), "--sync", "--root", str(shop)), "--root must lie above"),
        ((str(empty), "--sync"), "holds no documents"),
    ):
        found = await cli("ingest", *arguments)
        assert (found.exit_code, told in found.stderr) == (1, True), found.stderr
    assert "shop/tents.md" in await index.documents("docs", "public")


async def test_new_sizes_of_passages_are_taken_up(
    cli: Cli, index: EdgeIndex, shop: Path, environment: pytest.MonkeyPatch
) -> None:
    (shop / "long.txt").write_text("\n\n".join(f"Paragraph {n} about tents and pegs." for n in range(40)), "utf-8")
    before = await ingested(cli, str(shop))
    assert (await ingested(cli, str(shop)))["documents"] == {"unchanged": 5}
    environment.setenv("CAIRN_SPLIT_TARGET", "40")
    environment.setenv("CAIRN_SPLIT_MAX", "60")
    after = await ingested(cli, str(shop))
    assert after["documents"] == {"replaced": 5}
    assert after["passages"] > before["passages"]
