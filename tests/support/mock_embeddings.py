"""An embeddings endpoint on loopback: real HTTP, no model. The same text always gets the same vector.

In process: `async with MockEmbeddings(dimension=64) as mock: ... mock.base_url ...`
By itself:  `python -m tests.support.mock_embeddings --port 0` prints its base URL and serves until ended.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.mock_openai import Answer, MockOpenAI

DIMENSION = 64


class MockEmbeddings(MockOpenAI):
    """`/v1/embeddings`. `next_answers` are used up first; it keeps no requests, so that it may serve millions."""

    def __init__(
        self, *, dimension: int = DIMENSION, latency_s: float = 0.0, fail_every: int = 0, port: int = 0
    ) -> None:
        """Each `fail_every`th request is answered with 503; 0 fails none."""
        super().__init__(latency_s=latency_s, port=port)
        self.dimension = dimension
        self.fail_every = fail_every
        self.asked = 0
        """Requests so far."""
        self.embedded = 0
        """Texts embedded so far."""

    def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if (method, path) != ("POST", "/v1/embeddings"):
            return Answer.fault(404, f"no such path: {path}")
        self.asked += 1
        if self.next_answers:
            return self.next_answers.popleft()
        if self.fail_every and self.asked % self.fail_every == 0:
            return Answer.fault(503)
        request: dict[str, Any] = json.loads(body)
        wanted = request["input"]
        texts = [wanted] if isinstance(wanted, str) else wanted
        self.embedded += len(texts)
        return Answer(raw=json.dumps(reply(request.get("model", "mock"), texts, self.dimension)).encode())


def reply(model: str, texts: Sequence[str], dimension: int) -> dict[str, Any]:
    """The body of an embeddings reply."""
    rows = [
        {"object": "embedding", "index": number, "embedding": vector_of(text, dimension).tolist()}
        for number, text in enumerate(texts)
    ]
    tokens = sum(len(text) // 4 for text in texts)
    return {"object": "list", "model": model, "data": rows, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def vector_of(text: str, dimension: int = DIMENSION) -> npt.NDArray[np.float64]:
    """A vector of length 1 that depends on the text alone; those of two texts are as good as random."""
    digits = hashlib.shake_256(text.encode("utf-8", "surrogatepass")).digest(4 * dimension)
    vector = np.asarray(np.frombuffer(digits, dtype="<i4"), dtype=np.float64)
    return np.round(vector / float(np.linalg.norm(vector)), 7)


@contextmanager
def embeddings_process(*, dimension: int = DIMENSION, latency_ms: float = 0.0, fail_every: int = 0) -> Iterator[str]:
    """The base URL of an endpoint in its own process."""
    options = {"--port": 0, "--dimension": dimension, "--latency-ms": latency_ms, "--fail-every": fail_every}
    told = [str(word) for option in options.items() for word in option]
    command = [sys.executable, "-m", "tests.support.mock_embeddings", *told]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


async def _serve(told: argparse.Namespace) -> None:
    mock = MockEmbeddings(
        dimension=told.dimension, latency_s=told.latency_ms / 1000, fail_every=told.fail_every, port=told.port
    )
    async with mock:
        print(mock.base_url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="An embeddings endpoint on loopback without a model.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--dimension", type=int, default=DIMENSION)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--fail-every", type=int, default=0, help="answer each N-th request with 503; 0 fails none")
    try:
        asyncio.run(_serve(parser.parse_args()))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
