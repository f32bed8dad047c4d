"""The web search's waiting: a query from the model, pages read side by side, passages compared by the embedder."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np

from services.websearch.decision import Query, query_by_rules, read_query, web_passage
from services.websearch.prompts import PROMPT_VERSION, conversation
from shared.clients.chat import ChatModel, NoCompletion, completion_or_reason, spent
from shared.clients.embedder import Embedder, Vector
from shared.clients.judge.features import embedded_text
from shared.clients.pages import PageReader, PageRefused
from shared.clients.web.model import Domains, host_of
from shared.contracts import Header, Passage, SearchWeb, WebPage
from shared.errors import CairnError

_MAX_TOKENS = 100
_BATCH = 6
"""Passages embedded at once: what is done when the time is up counts."""


def seconds(header: Header, most: float, *, share: float) -> float:
    """`most`, or that share of the time to the job's deadline where it is less."""
    return max(0.0, min(most, (header.deadline - time.time()) * share))


async def write_query(msg: SearchWeb, chat: ChatModel | None, timeout_s: float) -> Query:
    """A few keywords: the model's, or those of the rules without one or where its reply is no query."""
    by_rules = query_by_rules(msg.asked, msg.header.language)
    if chat is None or msg.header.budget.spent:
        return Query(by_rules)
    reply = await completion_or_reason(chat, conversation(msg.asked), max_tokens=_MAX_TOKENS, timeout_s=timeout_s)
    if isinstance(reply, NoCompletion):
        return Query(by_rules, degraded=(f"web query by rules: {reply.reason}",))
    usage = spent("websearch", reply)
    if text := read_query(reply.text):
        return Query(text, usage, {"web_query_prompt": PROMPT_VERSION})
    return Query(by_rules, usage, degraded=("web query by rules: the model's reply is no query",))


async def read_pages(
    found: Sequence[WebPage],
    reader: PageReader | None,
    domains: Domains,
    header: Header,
    *,
    count: int,
    timeout_s: float,
) -> tuple[list[list[Passage]], tuple[str, ...]]:
    """Each page's passages, in the order found: of the first `count` what was read in time, else the excerpt.

    Says why where none of them could be read.
    """
    tasks = [asyncio.create_task(_read(reader, page, domains, header, timeout_s)) for page in found[:count] if reader]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    pages = [_excerpt(page, header) for page in found]
    why: Counter[str] = Counter()
    for place, result in enumerate(ended):
        if isinstance(result, list):
            pages[place] = result
        elif isinstance(result, CairnError | asyncio.CancelledError):
            why[result.reason if isinstance(result, PageRefused) else "unavailable or too slow"] += 1
        else:
            raise result
    told = ", ".join(f"{reason} {times}" for reason, times in why.most_common())
    return pages, (f"no web page could be read, only excerpts: {told}",) if tasks and why.total() == len(tasks) else ()


async def _read(
    reader: PageReader, found: WebPage, domains: Domains, header: Header, timeout_s: float
) -> list[Passage]:
    page = await reader.read(found.url, timeout_s=timeout_s)
    if not domains.admit(host_of(page.url)):
        raise PageRefused("redirects", f"{found.url} leads to a domain that is not admitted")
    place = ", ".join(part for part in (page.site or host_of(page.url), page.published) if part)
    return [
        web_passage(
            header,
            url=page.url,
            title=page.title or found.title,
            text=text,
            place=place,
            language=page.language,
            fetched_at=page.fetched_at,
        )
        for text in page.passages
    ]


def _excerpt(page: WebPage, header: Header) -> list[Passage]:
    if not page.snippet:
        return []
    place = f"{host_of(page.url)} (excerpt)"
    return [web_passage(header, url=page.url, title=page.title, text=page.snippet, place=place)]


async def by_meaning(
    question: str, passages: Sequence[Passage], embedder: Embedder | None, timeout_s: float
) -> tuple[list[Passage], tuple[str, ...]]:
    """The passages by likeness to the question; those that the time did not suffice for come last, as they stood."""
    vectors: list[Vector] = []
    degraded: tuple[str, ...] = ()
    asked = np.empty(0)
    if embedder is not None:
        try:
            async with asyncio.timeout(timeout_s):
                asked = (await embedder.embed_questions([question]))[0]
                for start in range(0, len(passages), _BATCH):
                    texts = [embedded_text(passage) for passage in passages[start : start + _BATCH]]
                    vectors.extend(await embedder.embed_passages(texts))
        except (CairnError, TimeoutError) as failed:
            degraded = (
                () if vectors else (f"web passages chosen by words: {str(failed) or 'the embedder is too slow'}",)
            )
    likeness = [float(vector @ asked / (np.linalg.norm(vector) * np.linalg.norm(asked) + 1e-12)) for vector in vectors]
    order = sorted(range(len(vectors)), key=lambda place: -likeness[place])
    return [*(passages[place] for place in order), *passages[len(vectors) :]], degraded
