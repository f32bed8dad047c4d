"""docs/contract is what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.runtime.contract import documents

CONTRACT = Path(__file__).parents[2] / "docs" / "contract"


async def test_the_generated_contract_is_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_DATA_DIR", str(tmp_path))
    generated = await documents()
    written = {path.name: path.read_text("utf-8") for path in CONTRACT.glob("*.json")}
    assert written.keys() == generated.keys()
    for name, content in generated.items():
        assert written[name] == content, f"{name} is out of date: make docs"
