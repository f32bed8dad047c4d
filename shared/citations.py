"""Citations straight from evidence, for outcomes that nobody wrote an answer for."""

from __future__ import annotations

from collections.abc import Sequence

from shared.contracts import Citation, Evidence

QUOTE_CHARS = 300


def citation(number: int, evidence: Evidence, quote: str) -> Citation:
    """`[number]`, pointing to this passage with this quote, which must stand word for word in it."""
    passage = evidence.passage
    return Citation(
        n=number,
        passage_id=passage.passage_id,
        document_id=passage.document_id,
        title=passage.title,
        uri=passage.uri if passage.anchor is None or "#" in passage.uri else f"{passage.uri}#{passage.anchor}",
        section=passage.section,
        quote=quote,
    )


def citations_of(evidence: Sequence[Evidence]) -> tuple[Citation, ...]:
    """One citation a passage, in order, each quoting its best strip up to a whole word within `QUOTE_CHARS`."""
    return tuple(
        citation(number, each, shortened(each.strips[0] if each.strips else each.passage.text))
        for number, each in enumerate(evidence, start=1)
    )


def shortened(text: str, limit: int = QUOTE_CHARS) -> str:
    """The beginning of `text` up to `limit` characters, cut between words; still word for word from `text`."""
    text = text.strip()
    if len(text) <= limit:
        return text
    cut = text[:limit]
    return cut[: cut.rfind(" ")] if " " in cut else cut
