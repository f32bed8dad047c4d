"""A client in another language: node-redis submits in both forms and reads the outcome.

The packages come from npm into a temporary folder; skipped, saying so, where node or npm is missing.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from shared.runtime.keys import Keys
from tests.support.bus import pipeline, running

SCRIPT = Path(__file__).with_name("node_client.mjs")
NODE_REDIS = "redis@5.9.0"


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not installed: the node-redis client can't be tried")
    folder = tmp_path_factory.mktemp("node")
    install = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder), NODE_REDIS]
    installed = subprocess.run(install, capture_output=True, text=True, check=False)
    if installed.returncode != 0:
        pytest.skip(f"npm can't install {NODE_REDIS}: {installed.stderr[-300:]}")
    shutil.copy(SCRIPT, folder / SCRIPT.name)
    return folder


async def test_node_redis_submits_and_reads(node_modules: Path, redis_url: str, keys: Keys) -> None:
    async with running(pipeline(), redis_url, keys):
        process = await asyncio.create_subprocess_exec(
            "node",
            str(node_modules / SCRIPT.name),
            redis_url,
            keys.prefix,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, stderr.decode()
    fields, as_json = (json.loads(line) for line in stdout.decode().splitlines())
    assert (fields["status"], fields["answer"], fields["job_id"]) == ("answered", "Combien ?", fields["entry_id"])
    assert (as_json["status"], as_json["answer"], as_json["job_id"]) == ("answered", "Почему?", "from-node")
