"""The Helm chart, held against the code and compose.yaml, and against Kubernetes' and KEDA's schemas."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.runtime.common import Common
from shared.runtime.connection import connect
from shared.runtime.keys import INBOXES, STAGES, Keys
from shared.scaler.decision import BUSY_SHARE
from shared.settings import RuntimeSettings

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/kubernetes"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]
QDRANT = ("--set", "qdrant.url=http://qdrant:6333")
KEDA = (*QDRANT, "--set", "keda.enabled=true")

Manifests = dict[str, dict[str, dict[str, Any]]]
"""By kind and name."""


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    found = shutil.which("helm", path=str(ROOT / ".venv/bin")) or shutil.which("helm")
    if found is None:
        pytest.skip("no helm: the chart was NOT rendered, nor held against any schema")
    return subprocess.run([found, *arguments], capture_output=True, text=True, check=False)


@cache
def rendered(*settings: str) -> Manifests:
    run = helm("template", "cairn", str(CHART), *settings)
    assert run.returncode == 0, run.stderr
    found: Manifests = defaultdict(dict)
    for each in yaml.safe_load_all(run.stdout):
        assert each["metadata"]["name"] not in found[each["kind"]]
        found[each["kind"]][each["metadata"]["name"]] = each
    return found


def worker(manifests: Manifests, stage: str) -> dict[str, Any]:
    (container,) = manifests["Deployment"][f"cairn-{stage}"]["spec"]["template"]["spec"]["containers"]
    return dict(container)


def test_chart_and_code_have_the_same_stages_and_inboxes() -> None:
    assert set(VALUES["stages"]) == set(STAGES)
    assert {inbox: stage for stage, of in VALUES["stages"].items() for inbox in of["streams"]} == INBOXES


@pytest.mark.parametrize("stage", STAGES)
async def test_a_replica_more_is_called_for_before_one_is_full(stage: str, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("CAIRN_DATA_DIR", str(tmp_path))
    open_stage = importlib.import_module(f"services.{stage}.main").open_stage
    async with open_stage(Common(connect("redis://127.0.0.1:1"), Keys())) as opened:
        slots = next(inbox.max_workers for inbox in opened.inboxes if inbox.name == stage)
    assert VALUES["stages"][stage]["streams"][stage] == int(slots * BUSY_SHARE)


def test_helm_finds_nothing_to_complain_about() -> None:
    for settings in (QDRANT, KEDA):
        run = helm("lint", "--strict", "--quiet", str(CHART), *settings)
        assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_runs_as_in_compose(stage: str) -> None:
    manifests = rendered(*QDRANT)
    container = worker(manifests, stage)
    pod = manifests["Deployment"][f"cairn-{stage}"]["spec"]["template"]["spec"]
    assert container["args"] == COMPOSE[stage]["command"]
    assert f"{pod['terminationGracePeriodSeconds']}s" == COMPOSE[stage]["stop_grace_period"]
    assert pod["terminationGracePeriodSeconds"] > RuntimeSettings().grace_s
    environment = {each["name"]: each for each in container["env"]}
    assert environment["CAIRN_REDIS_URL"]["valueFrom"]["secretKeyRef"] == {"name": "cairn-redis", "key": stage}
    assert ("CAIRN_QDRANT_URL" in environment) == ("CAIRN_QDRANT_URL" in COMPOSE[stage]["environment"])
    limits = COMPOSE[stage]["deploy"]["resources"]["limits"]
    assert container["resources"]["limits"]["memory"] == limits["memory"].upper() + "i"


@pytest.mark.parametrize("stage", STAGES)
def test_a_pod_is_confined_and_asked_how_it_is(stage: str) -> None:
    manifests = rendered(*QDRANT)
    container = worker(manifests, stage)
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    pod = manifests["Deployment"][f"cairn-{stage}"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"USER {pod['securityContext']['runAsUser']}:" in (ROOT / "deploy/Dockerfile").read_text("utf-8")
    assert pod["automountServiceAccountToken"] is False
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert manifests["PodDisruptionBudget"][f"cairn-{stage}"]["spec"]["maxUnavailable"] == 1
    assert manifests["NetworkPolicy"][f"cairn-{stage}"]["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_what_selects_a_stage_finds_its_pods_and_no_others() -> None:
    manifests = rendered(*KEDA)
    for stage in STAGES:
        spec = manifests["Deployment"][f"cairn-{stage}"]["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert labels["app.kubernetes.io/component"] == stage
        assert labels == spec["selector"]["matchLabels"]
        assert labels == manifests["Service"][f"cairn-{stage}"]["spec"]["selector"]
        assert labels == manifests["PodDisruptionBudget"][f"cairn-{stage}"]["spec"]["selector"]["matchLabels"]
        assert labels == manifests["NetworkPolicy"][f"cairn-{stage}"]["spec"]["podSelector"]["matchLabels"]
        assert manifests["ScaledObject"][f"cairn-{stage}"]["spec"]["scaleTargetRef"] == {"name": f"cairn-{stage}"}


def test_keda_counts_the_length_of_every_inbox_and_of_nothing_else() -> None:
    manifests = rendered(*KEDA)
    streams = {}
    for name, each in manifests["ScaledObject"].items():
        spec = each["spec"]
        assert 1 <= spec["minReplicaCount"] <= spec["maxReplicaCount"]
        assert "replicas" not in manifests["Deployment"][name]["spec"], "helm would undo what KEDA did"
        for trigger in spec["triggers"]:
            assert trigger["type"] == "redis-streams"
            assert trigger["metadata"].keys() == {"address", "stream", "streamLength"}
            assert trigger["authenticationRef"]["name"] in manifests["TriggerAuthentication"]
            streams[trigger["metadata"]["stream"]] = name.removeprefix("cairn-")
    assert streams == {Keys().inbox(inbox): group for inbox, group in INBOXES.items()}


def test_secrets_and_settings_go_to_the_stages_they_are_for() -> None:
    own = ["secrets.existingSecret=keys", "secrets.stages.grader.CAIRN_JUDGE_API_KEY=judge"]
    own += ["config.CAIRN_LLM_MODEL=m", "stages.grader.env.CAIRN_LLM_MODEL=other"]
    manifests = rendered(*QDRANT, *(part for each in own for part in ("--set", each)))
    given = {stage: {each["name"]: each for each in worker(manifests, stage)["env"]} for stage in STAGES}
    assert [stage for stage in STAGES if "CAIRN_JUDGE_API_KEY" in given[stage]] == ["grader"]
    assert {stage: given[stage]["CAIRN_LLM_MODEL"]["value"] for stage in STAGES} == {
        **dict.fromkeys(STAGES, "m"),
        "grader": "other",
    }


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ((), "qdrant.url is required"),
        ((*KEDA, "--set", "stages.grader.min=0"), "stages.grader.min must be at least 1"),
        ((*KEDA, "--set", "keda.trigger=redis-cluster-streams"), "hash tag in redis.prefix"),
        ((*QDRANT, "--set", "secrets.stages.grader.CAIRN_LLM_API_KEY=key"), "secrets.existingSecret"),
    ],
)
def test_what_cannot_work_is_refused(settings: tuple[str, ...], said: str) -> None:
    run = helm("template", "cairn", str(CHART), *settings)
    assert run.returncode != 0
    assert said in run.stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kubernetes_knows_every_field() -> None:
    if importlib.util.find_spec("kubernetes_validate") is None:
        pytest.skip("no kubernetes-validate: the manifests were NOT held against Kubernetes' schemas")
    validate = importlib.import_module("kubernetes_validate").validate
    manifests = [each for kind in rendered(*KEDA).values() for each in kind.values()]
    core = [each for each in manifests if not each["apiVersion"].startswith("keda")]
    assert len(core) == 1 + 4 * len(STAGES)
    for each in core:
        validate(each, "1.33", strict=True)


def test_keda_knows_every_field() -> None:
    if importlib.util.find_spec("cloudcoil") is None:
        pytest.skip("no cloudcoil-models-keda: the ScaledObjects were NOT held against KEDA's schema")
    models = importlib.import_module("cloudcoil.models.keda.v1alpha1")
    manifests = rendered(*KEDA)
    for kind in ("ScaledObject", "TriggerAuthentication"):
        for each in manifests[kind].values():
            model = getattr(models, kind).model_validate(each)
            # A field that the model does not know falls out on the way.
            assert model.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True) == each
