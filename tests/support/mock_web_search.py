"""A search API on loopback: real HTTP, with replies of the test's choosing, and those that providers document."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came in."""

    method: str
    path: str
    parameters: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered; a body that is not bytes goes out as JSON."""

    body: bytes | Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    silent: bool = False
    """Never answer."""
    cut: bool = False
    """Close the connection instead."""
    endless: bool = False
    """Go on sending the body until the client is gone, with `pause_s` in between."""
    pause_s: float = 0.0
    after_s: float = 0.0


class MockWebSearch:
    """`async with MockWebSearch(reply) as site: … site.base_url …`; what was asked is in `asked`."""

    def __init__(self, reply: Reply | Callable[[Asked], Reply]) -> None:
        self.reply = reply
        self.asked: list[Asked] = []
        self.sent_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def base_url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            self.asked.append(asked := await _read(reader))
            await self._answer(self.reply if isinstance(self.reply, Reply) else self.reply(asked), writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()  # the client or the test is done
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reply: Reply, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(reply.after_s)
        if reply.silent:
            await asyncio.Event().wait()
        if reply.cut:
            return
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        length = {} if reply.endless else {"Content-Length": str(len(body))}
        headers = {"Content-Type": "application/json", **length, "Connection": "close", **reply.headers}
        lines = [f"HTTP/1.1 {reply.status} Mock", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        while True:
            writer.write(body)
            await writer.drain()
            self.sent_bytes += len(body)
            if not reply.endless:
                return
            await asyncio.sleep(reply.pause_s)


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, target, _ = head[0].split(" ")
    parts = urlsplit(target)
    parameters = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    return Asked(method, parts.path, parameters, headers, json.loads(body) if body else None)


def searxng(*results: Any, unresponsive: Any = ()) -> Reply:
    """SearXNG's reply, with some of the fields that nobody reads."""
    return Reply(
        {"query": "tents", "number_of_results": 0, "results": list(results), "unresponsive_engines": list(unresponsive)}
    )


def found(url: str = "https://example.org/tents", title: str = "Tents", content: str = "A tent is a shelter.") -> Any:
    """One of SearXNG's results."""
    return {"url": url, "title": title, "content": content, "engine": "mojeek", "score": 1.5, "parsed_url": ["https"]}


def tavily(pages: Sequence[tuple[str, str, str]]) -> Reply:
    results = [{"url": url, "title": title, "content": text, "score": 0.9} for url, title, text in pages]
    return Reply({"query": "tents", "answer": None, "images": [], "results": results, "response_time": 0.3})


def brave(pages: Sequence[tuple[str, str, str]]) -> Reply:
    results = [{"url": url, "title": title, "description": text, "type": "search_result"} for url, title, text in pages]
    web = {"web": {"type": "search", "results": results}} if results else {}
    return Reply({"type": "search", "query": {"original": "tents"}, **web})


def serper(pages: Sequence[tuple[str, str, str]]) -> Reply:
    organic = [
        {"link": url, "title": title, "snippet": text, "position": n} for n, (url, title, text) in enumerate(pages, 1)
    ]
    return Reply({"searchParameters": {"q": "tents"}, "organic": organic, "credits": 1})
