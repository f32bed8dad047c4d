"""What the web search decides: what leaves for the web, and how its hits become passages. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from urllib.parse import urlsplit

from shared.contracts import Grade, Header, Passage, SearchWeb, TrailPassage, TrailStep, WebPage
from shared.language import detect_language, terms

MAX_WEB_QUERY_CHARS = 200


def web_query(msg: SearchWeb) -> str:
    """What the search engine sees: the question, or its content words where it is long.

    Only the asker's own words: nothing of who asks, and nothing that was found in the index.
    """
    question = " ".join(msg.asked.question.split())
    if len(question) <= MAX_WEB_QUERY_CHARS:
        return question
    words = [word for word in question.split() if terms(word, msg.header.language)]
    kept: list[str] = []
    for word in words:
        if len(" ".join([*kept, word])) > MAX_WEB_QUERY_CHARS:
            break
        kept.append(word)
    return " ".join(kept) or question[:MAX_WEB_QUERY_CHARS]


def passages_of(pages: Sequence[WebPage], header: Header) -> tuple[Passage, ...]:
    """Hits as passages that only this job's asker's tenant reads, best first as the engine ranked them."""
    return tuple(
        Passage(
            passage_id=str(uuid.uuid5(uuid.NAMESPACE_URL, f"{page.url}\x1f{page.snippet}")),
            document_id=page.url,
            title=page.title[:300],
            uri=page.url,
            section=urlsplit(page.url).hostname or "",
            text=page.snippet,
            language=detect_language(page.snippet),
            tenant=header.principal.tenant,
            origin="web",
            score=1.0 / rank,
        )
        for rank, page in enumerate(pages, start=1)
    )


def back_to_grader(msg: SearchWeb, query: str, passages: tuple[Passage, ...], degraded: tuple[str, ...]) -> Grade:
    """The next command: what was kept, and what the web brought, to be graded like everything else."""
    step = TrailStep(
        hop=msg.header.hop,
        route=msg.route,
        queries=(query,) if query else (),
        passages=tuple(
            TrailPassage(passage_id=each.passage_id, origin="web", score=round(each.score, 6)) for each in passages
        ),
        reason="" if query else "no web search provider (CAIRN_WEB_PROVIDER)",
    )
    return Grade(
        header=msg.header.updated(step=step, degraded=degraded),
        asked=msg.asked,
        route=msg.route,
        queries=msg.queries,
        passages=passages,
        evidence=msg.evidence,
        searched_web=True,
    )
