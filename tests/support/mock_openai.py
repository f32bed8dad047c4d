"""A chat endpoint on loopback that answers as told: real HTTP, no model.

In process: `async with MockOpenAI(latency_s=0.2) as mock: ... mock.base_url ...`
By itself:  `python -m tests.support.mock_openai --port 0 --latency-ms 200` prints its base URL and serves until ended.
            `--script MODULE:NAME` answers as that function says; GET {base_url}/served tells how many were answered.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

DEFAULT_REPLY = '{"score":0.9,"verdict":"relevant","reason":"mock"}'

Request: TypeAlias = dict[str, Any]
"""The decoded JSON body of a request."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer: `text` as a chat completion, or `raw` as the whole body, or a connection `cut`."""

    text: str = DEFAULT_REPLY
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    cut: bool = False
    latency_s: float | None = None
    """Instead of the mock's own."""
    pieces: tuple[str, ...] | None = None
    """What a stream says piece by piece; where absent, `text` in pieces of four characters."""
    pause_s: float = 0.0
    """Between two pieces."""
    breaks: bool = False
    """The stream ends without its end."""
    counted: bool = True
    """Whether a stream that is asked for its usage tells it."""

    @classmethod
    def fault(cls, status: int, message: str = "mock fault", *, code: str = "", **headers: str) -> Answer:
        """An OpenAI-style error; `Retry_After="1"` gives the header Retry-After."""
        body = json.dumps({"error": {"message": message, "code": code or None}}).encode()
        return cls(status=status, raw=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


Script: TypeAlias = Callable[[Request], Answer]


class MockOpenAI:
    """`/v1/chat/completions`. `next_answers` are used up first, then `script` (or the default reply) answers."""

    def __init__(self, *, latency_s: float = 0.0, script: Script | None = None, port: int = 0) -> None:
        self.latency_s = latency_s
        self.script = script
        self.next_answers: deque[Answer] = deque()
        self.requests: list[Request] = []
        """Bodies, in order of arrival."""
        self.headers: list[dict[str, str]] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.streams_open = 0
        self.streams_left = 0
        """Streams whose client went away before the end."""
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port, backlog=512)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client or the test is done
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers one request; False once the connection is over."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = head[0].split(" ")
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            answer = self._answer(method, path, headers, body)
            await asyncio.sleep(self.latency_s if answer.latency_s is None else answer.latency_s)
        finally:
            self.in_flight -= 1
        if answer.cut:
            return False
        if answer.raw is None and answer.status == 200 and self.requests and self.requests[-1].get("stream"):
            return await self._stream(answer, self.requests[-1], reader, writer)
        writer.write(_encoded(answer))
        await writer.drain()
        return headers.get("connection", "").lower() != "close"

    async def _stream(
        self, answer: Answer, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """The answer as server-sent events, as long as the client listens."""
        writer.write(b"HTTP/1.1 200 Mock\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        gone = asyncio.create_task(reader.read(1))
        pieces = answer.pieces or tuple(answer.text[at : at + 4] for at in range(0, len(answer.text), 4))
        self.streams_open += 1
        try:
            for piece in pieces:
                writer.write(_event(chunk(piece)))
                await writer.drain()
                if answer.pause_s and (await asyncio.wait({gone}, timeout=answer.pause_s))[0]:
                    self.streams_left += 1
                    return False
            if not answer.breaks:
                writer.write(_event(chunk("", finish_reason="stop")))
                if answer.counted and request.get("stream_options", {}).get("include_usage"):
                    writer.write(_event({**completion(""), "choices": []}))
                writer.write(b"data: [DONE]\n\n")
                await writer.drain()
            return False
        finally:
            self.streams_open -= 1
            gone.cancel()

    def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if (method, path) == ("GET", "/v1/served"):
            return Answer(raw=json.dumps(len(self.requests)).encode(), latency_s=0)
        if (method, path) != ("POST", "/v1/chat/completions"):
            return Answer.fault(404, f"no such path: {path}")
        request: Request = json.loads(body)
        self.requests.append(request)
        self.headers.append(headers)
        if self.next_answers:
            return self.next_answers.popleft()
        return self.script(request) if self.script is not None else Answer()


def completion(text: str, *, finish_reason: str = "stop", tokens: tuple[int, int] | None = (100, 20)) -> dict[str, Any]:
    """A chat completion's body; `tokens` are prompt and completion tokens, None for an endpoint that reports none."""
    message = {"role": "assistant", "content": text}
    body: dict[str, Any] = {
        "id": "mock",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
    }
    if tokens is not None:
        body["usage"] = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    return body


def chunk(text: str, *, finish_reason: str | None = None) -> dict[str, Any]:
    """One chunk of a streamed completion."""
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish_reason}
    return {"id": "mock", "object": "chat.completion.chunk", "choices": [choice]}


def _event(data: Any) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _encoded(answer: Answer) -> bytes:
    body = json.dumps(completion(answer.text)).encode() if answer.raw is None else answer.raw
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **answer.headers}
    lines = [f"HTTP/1.1 {answer.status} Mock", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


async def _serve(port: int, latency_s: float, script: Script | None) -> None:
    async with MockOpenAI(port=port, latency_s=latency_s, script=script) as mock:
        print(mock.base_url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A chat endpoint on loopback without a model.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--script", metavar="MODULE:NAME", help="a function from request to Answer")
    told = parser.parse_args()
    module, _, name = (told.script or "").partition(":")
    script: Script | None = getattr(importlib.import_module(module), name) if module else None
    try:
        asyncio.run(_serve(told.port, told.latency_ms / 1000, script))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
