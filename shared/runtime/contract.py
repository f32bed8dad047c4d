"""The message contract, generated from the code: `python -m shared.runtime.contract docs/contract`.

One JSON Schema for each message, and one AsyncAPI document of all services, made by FastStream from the very
subscribers and publishers that run. A test holds the files equal to the code.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from faststream.redis import RedisBroker
from faststream.specification import AsyncAPI
from redis.asyncio import Redis

from shared.contracts import Answered, Ask, Contract, Generate, Grade, Ingest, Ingested, Retrieve, Rewrite, SearchWeb
from shared.runtime.common import Common
from shared.runtime.keys import STAGES, Keys
from shared.runtime.stage import Stage
from shared.runtime.worker import Worker
from shared.settings import RuntimeSettings

MESSAGES: tuple[type[Contract], ...] = (
    Ask,
    Rewrite,
    Retrieve,
    Grade,
    SearchWeb,
    Generate,
    Answered,
    Ingest,
    Ingested,
)


async def stages() -> list[Stage]:
    """Every service as it would run with default settings."""
    found = []
    common = Common(Redis(), Keys(), RuntimeSettings())  # never connects
    for name in STAGES:
        async with importlib.import_module(f"services.{name}.main").open_stage(common) as stage:
            found.append(stage)
    return found


async def documents() -> dict[str, str]:
    """File name -> content of the whole contract."""
    files = {f"{model.__name__}.schema.json": _json(model.model_json_schema()) for model in MESSAGES}
    files["asyncapi.json"] = _json(await _asyncapi())
    return files


async def _asyncapi() -> dict[str, Any]:
    brokers: list[RedisBroker] = []
    for stage in await stages():
        # A fixed consumer name: the real one has the process id in it.
        worker = Worker(stage, "redis://localhost:6379", Keys(), RuntimeSettings(), consumer=f"{stage.name}-1")
        brokers.append(worker.broker)
        await worker.redis.aclose()
    specification = AsyncAPI(*brokers, title="Cairn", version="1", schema_version="3.0.0")
    document: dict[str, Any] = json.loads(specification.to_specification().to_json())
    return document


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main() -> None:
    """Write the files into the folder named on the command line."""
    folder = Path(sys.argv[1])
    os.environ["CAIRN_DATA_DIR"] = tempfile.mkdtemp()  # the services open their clients
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in asyncio.run(documents()).items():
        (folder / name).write_text(content, "utf-8")


if __name__ == "__main__":
    main()
