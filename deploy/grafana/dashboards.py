"""From panels.yaml to what Grafana reads: `python -m deploy.grafana.dashboards` writes dashboards/*.json.

Tests hold the files equal to panels.yaml, every metric in it to the code that exports it, and every query to data from
a real Prometheus.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
RUNBOOK = "/public/cairn/runbook.md"
"""Where compose.yaml lets Grafana serve docs/runbook.md."""
DATASOURCE = {"type": "prometheus", "uid": "prometheus"}
COLUMNS = 24
JOBS = "sum(rate(cairn_job_seconds_count[R]))"

_STAGE = {
    "name": "stage",
    "label": "Stage",
    "type": "query",
    "datasource": DATASOURCE,
    "query": {"query": "label_values(cairn_healthy, service)", "refId": "stage"},
    "current": {"text": "grader", "value": "grader"},
    "refresh": 2,
    "sort": 1,
}


def queries(panel: Mapping[str, Any]) -> dict[str, str]:
    """PromQL by legend."""
    found = dict(panel.get("queries", {}))
    if "quantiles" in panel:
        metric, where = re.fullmatch(r"(\w+)(.*)", panel["quantiles"]).groups()  # type: ignore[union-attr]
        for percent in (50, 95, 99):
            buckets = f"sum by (le) (rate({metric}_bucket{where}[R]))"
            found[f"p{percent}"] = f"histogram_quantile({percent / 100}, {buckets})"
    return {
        legend: re.sub(r"\bJOBS\b", JOBS, expr).replace("[R]", "[$__rate_interval]") for legend, expr in found.items()
    }


def render(name: str, dashboard: Mapping[str, Any]) -> dict[str, Any]:
    """The dashboard as Grafana's JSON."""
    return {
        "uid": f"cairn-{name}",
        "title": dashboard["title"],
        "tags": ["cairn"],
        "schemaVersion": 41,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "links": [_link("Cairn", type="dashboards", tags=["cairn"], keepTime=True, icon="dashboard")],
        "templating": {"list": [_STAGE] if name == "stage" else []},
        "panels": list(_panels(dashboard["panels"])),
    }


def _panels(described: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    x = y = row = 0
    for number, panel in enumerate(described, 1):
        kind = next(kind for kind in ("stat", "lines", "stacked") if kind in panel)
        width, height = (4, 4) if kind == "stat" else (12, 8)
        if x + width > COLUMNS:
            x, y, row = 0, y + row, 0
        yield _panel(panel, kind) | {"id": number, "gridPos": {"x": x, "y": y, "w": width, "h": height}}
        x, row = x + width, max(row, height)


def _panel(panel: Mapping[str, Any], kind: str) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel["unit"], "min": 0}
    if kind == "stat":
        options: dict[str, Any] = {"colorMode": "none", "reduceOptions": {"calcs": ["lastNotNull"], "values": False}}
    else:
        stacked = kind == "stacked"
        options = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
        defaults["custom"] = {
            "fillOpacity": 60 if stacked else 10,
            "showPoints": "never",
            "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        }
    return {
        "type": "stat" if kind == "stat" else "timeseries",
        "title": panel[kind],
        "description": panel["about"],
        "datasource": DATASOURCE,
        "links": [_link("Runbook", url=f"{RUNBOOK}#{panel['runbook']}", targetBlank=True)],
        "options": options,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": DATASOURCE,
                "expr": expr,
                "legendFormat": legend,
                "exemplar": "cairn_job_seconds_bucket" in expr,
            }
            for place, (legend, expr) in enumerate(queries(panel).items())
        ],
    }


def _link(title: str, **own: Any) -> dict[str, Any]:
    whole = {"type": "link", "icon": "external link", "tooltip": "", "url": "", "tags": [], "asDropdown": False}
    return {"title": title} | whole | {"targetBlank": False, "includeVars": False, "keepTime": False} | own


def described() -> dict[str, Any]:
    """The dashboards of panels.yaml by name."""
    found: dict[str, Any] = yaml.safe_load((HERE / "panels.yaml").read_text("utf-8"))
    return found


def files() -> dict[str, str]:
    """File name -> content."""
    return {
        f"{name}.json": json.dumps(render(name, dashboard), indent=1, ensure_ascii=False) + "\n"
        for name, dashboard in described().items()
    }


if __name__ == "__main__":
    for file, content in files().items():
        (HERE / "dashboards" / file).write_text(content, "utf-8")
