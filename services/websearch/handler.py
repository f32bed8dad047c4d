"""cairn:websearch -> search_web -> cairn:grader"""

from __future__ import annotations

import math

from services.websearch.decision import WebPolicy, back_to_grader, candidates, chosen
from services.websearch.reading import by_meaning, read_pages, seconds, write_query
from shared.clients.chat import ChatModel
from shared.clients.embedder import Embedder
from shared.clients.pages import PageReader
from shared.clients.web import WebSearch
from shared.clients.web.model import Domains
from shared.contracts import Grade, SearchWeb
from shared.errors import InvalidModelReply, Misconfigured, SearchUnavailable
from shared.runtime.controls import Controls

SWITCHED_OFF = "web search is switched off"
_POLICY = WebPolicy()
_EVERYWHERE = Domains()


async def search_web(
    msg: SearchWeb,
    *,
    web: WebSearch | None,
    top_k: int,
    reader: PageReader | None = None,
    embedder: Embedder | None = None,
    chat: ChatModel | None = None,
    policy: WebPolicy = _POLICY,
    domains: Domains = _EVERYWHERE,
    controls: Controls | None = None,
) -> Grade:
    """Search the web, read the first pages, hand their best passages to the grader.

    Without a provider, or when it fails, the job goes on with what it has. What pages say decides nothing here.
    """
    if web is None:
        return back_to_grader(msg, None)
    if controls is not None and not controls.web:
        return back_to_grader(msg, None, degraded=(SWITCHED_OFF,))
    query = await write_query(msg, chat, seconds(msg.header, policy.query_timeout_s, share=0.2))
    if not query.text:
        return back_to_grader(msg, query, degraded=("web search: the question has no words to search for",))
    try:
        found = await web.search(
            query.text,
            language=msg.header.language,
            limit=policy.results,
            timeout_s=seconds(msg.header, math.inf, share=0.4),
        )
    except (SearchUnavailable, Misconfigured, InvalidModelReply) as failed:  # promise 3: degrade, don't fail
        return back_to_grader(msg, query, degraded=(f"web search failed: {failed}",))
    time_to_read_s = seconds(msg.header, policy.pages_timeout_s, share=0.4)
    pages, degraded = await read_pages(found, reader, domains, msg.header, count=policy.pages, timeout_s=time_to_read_s)
    question = msg.queries[0] if msg.asked.history else msg.asked.question
    passages = candidates(question, msg.header.language, pages, policy.candidates)
    if not passages:
        return back_to_grader(msg, query, degraded=(*degraded, "web search found nothing"))
    if len(passages) > top_k:
        time_to_compare_s = seconds(msg.header, policy.embed_timeout_s, share=0.4)
        passages, by_words = await by_meaning(question, passages, embedder, time_to_compare_s)
        degraded += by_words
    return back_to_grader(msg, query, chosen(passages, top_k), degraded)
