"""cairn:websearch -> search_web -> cairn:grader"""

from __future__ import annotations

from services.websearch.decision import back_to_grader, passages_of, web_query
from shared.clients.web import WebSearch
from shared.contracts import Grade, Passage, SearchWeb
from shared.errors import InvalidModelReply, Misconfigured, SearchUnavailable


async def search_web(msg: SearchWeb, *, web: WebSearch | None, top_k: int) -> Grade:
    """Search the web; without a provider, or when it fails, the job goes on with what it has."""
    if web is None:
        return back_to_grader(msg, "", (), ())
    query = web_query(msg)
    passages: tuple[Passage, ...] = ()
    degraded: tuple[str, ...] = ()
    try:
        passages = passages_of(await web.search(query, language=msg.header.language, limit=top_k), msg.header)
    except (SearchUnavailable, Misconfigured, InvalidModelReply) as failed:  # promise 3: degrade, don't fail
        degraded = (f"web search failed: {failed}",)
    return back_to_grader(msg, query, passages, degraded)
