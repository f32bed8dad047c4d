"""Dashboards and alerts: as generated, about metrics that exist, in PromQL that parses and returns data."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import prometheus_client
import pytest
import yaml
from redis import Redis

from deploy.grafana.dashboards import HERE, described, files, queries
from shared.runtime.keys import STAGES

ROOT = Path(__file__).parents[2]
FOREIGN = re.compile(r"^(redis_(up|memory_(used|max)_bytes)|up|process_(cpu_seconds_total|resident_memory_bytes))$")
"""Metrics of redis-exporter, of Prometheus itself, and of every process on Linux."""


def panels() -> list[Any]:
    return [
        pytest.param(panel, id=f"{name}: {panel.get('stat') or panel.get('lines') or panel.get('stacked')}")
        for name, dashboard in described().items()
        for panel in dashboard["panels"]
    ]


def rules() -> list[Any]:
    found = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text("utf-8"))
    return [pytest.param(rule, id=rule["alert"]) for group in found["groups"] for rule in group["rules"]]


def runnable(expr: str, stage: str = "grader", every: str = "1m") -> str:
    """The query as Grafana would send it."""
    return expr.replace("$__rate_interval", every).replace("$stage", stage)


def metrics_of(expr: str) -> set[str]:
    """Names of the metrics in a query, as its parser sees them."""
    parser = pytest.importorskip("promql_parser", reason="no promql-parser: PromQL was not parsed")
    tree = parser.parse(runnable(expr))
    names: set[str] = set()

    def walk(node: Any) -> None:
        for child in [getattr(node, part, None) for part in ("lhs", "rhs", "expr", "param", "vector_selector", "vs")]:
            if child is not None:
                walk(child)
        for argument in getattr(node, "args", None) or ():
            walk(argument)
        if type(node).__name__ == "VectorSelector":
            names.add(node.name)

    walk(tree)
    return names


@pytest.fixture(scope="module")
def exported() -> set[str]:
    """Every metric that a module of ours declares."""
    for path in (found for folder in ("shared", "services") for found in (ROOT / folder).rglob("*.py")):
        if "prometheus_client" in path.read_text("utf-8"):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    names = set()
    for metric in prometheus_client.REGISTRY.collect():
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(metric.type, ("",))
        names |= {f"{metric.name}{suffix}" for suffix in suffixes}
    return names


def test_the_files_are_what_the_panels_say() -> None:
    found = {path.name: path.read_text("utf-8") for path in (HERE / "dashboards").glob("*.json")}
    assert found == files(), "run: python -m deploy.grafana.dashboards"


@pytest.mark.parametrize("panel", panels())
def test_a_panel_explains_itself_and_shows_what_is_exported(panel: dict[str, Any], exported: set[str]) -> None:
    assert len(panel["about"]) > 20
    assert panel["unit"] in {"s", "ops", "short", "bytes", "percentunit"}
    for expr in queries(panel).values():
        found = metrics_of(expr)
        assert found
        assert {name for name in found - exported if not FOREIGN.match(name)} == set()


@pytest.mark.parametrize("rule", rules())
def test_an_alert_watches_what_is_exported(rule: dict[str, Any], exported: set[str]) -> None:
    found = metrics_of(rule["expr"])
    assert found
    assert {name for name in found - exported if not FOREIGN.match(name)} == set()


# --- a real Prometheus, real workers ---------------------------------------------------------------------------------

SCRAPE_S = 2
LOAD_S = 40


def free_ports(count: int) -> int:
    """The first of `count` free ports in a row."""
    while True:
        first = 20_000 + secrets.randbelow(30_000)
        held = []
        try:
            for port in range(first, first + count):
                held.append(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        finally:
            for each in held:
                each.close()
        return first


@contextmanager
def process(*command: str, cwd: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with the body. Its standard output is to be read; the rest is in `log`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CAIRN_")}
    clean |= {"PYTHONPATH": str(ROOT), **environment}
    with (cwd / "log").open("ab") as log:
        started = subprocess.Popen(command, cwd=cwd, env=clean, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            started.kill()
            started.communicate()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, bool]]:
    """One that has scraped six real workers under load; and whether it scraped a redis-exporter, too."""
    server, exporter = shutil.which("prometheus"), shutil.which("prometheus-redis-exporter")
    if server is None:
        pytest.skip("no prometheus (Debian: apt-get install prometheus): NO panel was asked for data")
    home = tmp_path_factory.mktemp("monitoring")
    ports = free_ports(len(STAGES) + 2)
    targets = [
        {"targets": [f"127.0.0.1:{ports + number}"], "labels": {"service": stage}}
        for number, stage in enumerate(STAGES)
    ]
    redis_target, own = f"127.0.0.1:{ports + len(STAGES)}", f"127.0.0.1:{ports + len(STAGES) + 1}"
    jobs = [{"job_name": "cairn", "static_configs": targets}]
    jobs += [{"job_name": "redis", "static_configs": [{"targets": [redis_target]}]}] if exporter else []
    config = {"global": {"scrape_interval": f"{SCRAPE_S}s"}, "scrape_configs": jobs}
    (home / "prometheus.yml").write_text(yaml.safe_dump(config), "utf-8")
    python = (sys.executable, "-m")
    with process(*python, "tests.support.mock_openai", "--port", "0", "--latency-ms", "20", cwd=home) as model:
        assert model.stdout is not None
        base_url = model.stdout.readline().split()[-1]
        settings = {
            "CAIRN_METRICS_PORT": str(ports),
            "CAIRN_LLM_BASE_URL": base_url,
            "CAIRN_DATA_DIR": str(home / "data"),
        }
        with process(*python, "shared.cli", "up", cwd=home, **settings) as up:
            assert up.stdout is not None
            up.stdout.readline()
            ingest = [*python, "shared.cli", "ingest", str(ROOT / "samples/handbook/returns-and-refunds.md")]
            environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
            subprocess.run(ingest, cwd=home, env=environment, check=True, capture_output=True)
            address = json.loads((home / "data/redis.json").read_text("utf-8"))["url"]
            watching = (
                *(server, "--config.file=prometheus.yml", f"--storage.tsdb.path={home / 'tsdb'}"),
                f"--web.listen-address={own}",
            )
            exporting = (exporter or "true", "-redis.addr", address, "-web.listen-address", redis_target)
            with process(*watching, cwd=home), process(*exporting, cwd=home):
                _load(address)
                with httpx.Client(base_url=f"http://{own}/api/v1") as client:
                    yield client, exporter is not None


def _load(address: str) -> None:
    """Questions, some for the web and some that are refused, for as long as the panels' rates need."""
    with Redis.from_url(address) as redis:
        ends = time.monotonic() + LOAD_S
        number = 0
        while time.monotonic() < ends:
            number += 1
            asked = {"question": f"How long do I have to return tent number {number}?", "deadline_s": 30}
            redis.xadd("cairn:gateway", {"data": json.dumps(asked | ({"web": "only"} if number % 3 == 0 else {}))})
            if number % 5 == 0:
                redis.xadd("cairn:gateway", {"question": ""})
            time.sleep(0.3)


def _series(client: httpx.Client, expr: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        client.get("/query", params={"query": expr}).raise_for_status().json()["data"]["result"]
    )
    return found


def _complaint(client: httpx.Client, legend: str, expr: str) -> str:
    """What is wrong with one query of a panel."""
    found = _series(client, runnable(expr, every="20s"))
    if not any(math.isfinite(float(each["value"][1])) for each in found):
        return f"no data: {expr}"
    lacking = [label for label in re.findall(r"{{(\w+)}}", legend) for each in found if label not in each["metric"]]
    return f"no label {lacking} for the legend {legend!r}: {expr}" if lacking else ""


@pytest.mark.monitoring
@pytest.mark.timeout(400)
def test_every_panel_and_alert_has_data(prometheus: tuple[httpx.Client, bool]) -> None:
    """A panel whose query returns nothing from a running system is a panel that nobody has looked at."""
    client, with_redis = prometheus
    shown = [(legend, expr) for panel in panels() for legend, expr in queries(panel.values[0]).items()]
    watched = [("", metric) for rule in rules() for metric in metrics_of(rule.values[0]["expr"])]
    asked = [(legend, expr) for legend, expr in (*shown, *watched) if with_redis or "redis_" not in expr]
    assert [complaint for legend, expr in asked if (complaint := _complaint(client, legend, expr))] == []
    if not with_redis:
        pytest.skip("no prometheus-redis-exporter: all but Redis's own metrics returned data")


@pytest.mark.monitoring
@pytest.mark.timeout(300)
def test_the_dashboards_are_of_grafanas_types(tmp_path: Path) -> None:
    """Grafana's own TypeScript types know every field; its server could not be run here."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm: the dashboards were not held against Grafana's types")
    (tmp_path / "package.json").write_text("{}", "utf-8")
    packages = ["@grafana/schema@13.2.3", "typescript@7.0.2", "@types/react@19"]
    installed = subprocess.run([npm, "install", "--silent", *packages], cwd=tmp_path, capture_output=True, check=False)
    if installed.returncode != 0:
        pytest.skip("npm can't install @grafana/schema: the dashboards were not held against Grafana's types")
    typed = [f"export const {name.removesuffix('.json')}: Dashboard = {text};" for name, text in files().items()]
    source = "\n".join(['import type { Dashboard } from "@grafana/schema";', *typed])
    options = ["--strict", "--noEmit", "--skipLibCheck", "--moduleResolution", "bundler", "--module", "esnext"]

    def complaints(text: str) -> str:
        (tmp_path / "dashboards.ts").write_text(text, "utf-8")
        tsc = ["node_modules/.bin/tsc", *options, "dashboards.ts"]
        return subprocess.run(tsc, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    assert complaints(source) == ""
    assert "gridpos" in complaints(source.replace('"gridPos"', '"gridpos"', 1)), "a wrong field is not seen"
