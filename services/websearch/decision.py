"""What the web search decides: what leaves for the web, which passages come back. Pure."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from shared.contracts import Grade, Header, Passage, Question, SearchWeb, StageUsage, TrailPassage, TrailStep
from shared.language import detect_language, terms
from shared.overlap import coverage, distinct_terms, shared_pairs, weight

MAX_QUERY_CHARS = 200
MAX_QUERY_WORDS = 16
_MAX_HEADING_CHARS = 300
_SMALL = 3
_FEW_WORDS = 3
"""A question with fewer words of its own is searched together with the user's question before it."""
_BEFORE, _AFTER = "!?:;,-+~^|&*\"'«»“”„‘’()[]{}<>/\\=@#$", "!?:;,.-~^|&*\"'«»“”„‘’()[]{}<>/\\=@"
"""Operators, bangs and quotes at the edges of a word; "C++" and ".NET" stay what they are."""


@dataclass(frozen=True, slots=True)
class WebPolicy:
    """Bounds of one web search."""

    results: int = 10
    """Hits asked for."""
    pages: int = 5
    """The first of them that are read; of the others the search engine's excerpt counts."""
    candidates: int = 24
    """Passages that the embedder compares with the question."""
    query_timeout_s: float = 5.0
    pages_timeout_s: float = 6.0
    embed_timeout_s: float = 8.0


@dataclass(frozen=True, slots=True)
class Query:
    """What is searched, and how it came about."""

    text: str
    usage: StageUsage | None = None
    versions: dict[str, str] | None = None
    degraded: tuple[str, ...] = ()


def query_by_rules(asked: Question, language: str) -> str:
    """The question's words without the small ones; of a long question the sixteen most telling, in their order.

    Only the asker's own words: nothing of who asks, nothing that was found or answered. Empty where there are none.
    """
    words = _weighed(asked.question, language)
    earlier = [turn.content for turn in asked.history if turn.role == "user"]
    if earlier and sum(map(bool, words.values())) < _FEW_WORDS:
        words = _weighed(earlier[-1], language) | words
    # Lists of stop words name "fire" and "system": where there is room, only what is short goes.
    kept = [word for word in words if words[word] or len(word) > _SMALL] or list(words)
    best = sorted(kept, key=lambda word: words[word], reverse=True)[:MAX_QUERY_WORDS]
    return _cut([word for word in kept if word in best])


def read_query(reply: str) -> str:
    """The model's query, cleaned; empty where its reply is none: a sentence, several lines, too long."""
    lines = [line for line in reply.strip().strip("`").splitlines() if line.strip()]
    words = _cleaned(lines[0].replace(",", " ")) if len(lines) == 1 else []
    return " ".join(words) if len(words) <= MAX_QUERY_WORDS and len(" ".join(words)) <= MAX_QUERY_CHARS else ""


def _weighed(text: str, language: str) -> dict[str, float]:
    """Its words, and how much each tells: names and codes most, stop words nothing."""
    words = _cleaned(text)
    weighed = {}
    for place, word in enumerate(words):
        is_name = place > 0 and len(word) > 1 and word[0].isupper()
        is_signed = not (word[0] + word[-1]).isalnum()  # "C++" and ".NET" are stop words but for their signs
        weighed[word] = max(map(weight, terms(word, language)), default=0.0) + (0.5 if is_name or is_signed else 0.0)
    return weighed


def _cleaned(text: str) -> list[str]:
    """The words of `text` without what an engine takes for an operator, and without mail addresses."""
    found = (word.lstrip(_BEFORE).rstrip(_AFTER) for word in text.split())
    return [word for word in found if any(map(str.isalnum, word)) and "@" not in word]


def _cut(words: Sequence[str]) -> str:
    whole = " ".join(words)
    if len(whole) <= MAX_QUERY_CHARS:
        return whole
    return whole[: MAX_QUERY_CHARS + 1].rpartition(" ")[0] or whole[:MAX_QUERY_CHARS]


def web_passage(
    header: Header,
    *,
    url: str,
    title: str,
    text: str,
    place: str,
    language: str | None = None,
    fetched_at: float | None = None,
) -> Passage:
    """A stranger's text as a passage that only the asker's tenant reads; `place` is the site, as citations show it."""
    return Passage(
        passage_id=str(uuid.uuid5(uuid.NAMESPACE_URL, f"{url}\x1f{text}")),
        document_id=url,
        title=" ".join(title.split())[:_MAX_HEADING_CHARS] or url,
        uri=url,
        section=" ".join(place.split())[:_MAX_HEADING_CHARS],
        text=text,
        language=language or detect_language(text),
        tenant=header.principal.tenant,
        origin="web",
        fetched_at=fetched_at,
    )


def candidates(question: str, language: str, pages: Sequence[Sequence[Passage]], limit: int) -> list[Passage]:
    """Of each page's passages the best by words, then of each the second best, and so on: no page fills the list.

    A page in another language than the question shares no words with it, and still has its first passages here.
    """
    wanted = distinct_terms(question, language)

    def by_words(passage: Passage) -> float:
        present = terms(f"{passage.title}\n{passage.text}", language)
        return coverage(wanted, set(present)) + shared_pairs(wanted, present) / 2

    scores = {passage.passage_id: by_words(passage) for page in pages for passage in page}

    def best_first(passages: Iterable[Passage]) -> list[Passage]:
        return sorted(passages, key=lambda passage: scores[passage.passage_id], reverse=True)

    rounds = zip_longest(*(best_first(page) for page in pages))
    ordered = [passage for each in rounds for passage in best_first(filter(None, each))]
    return list({passage.passage_id: passage for passage in ordered}.values())[:limit]


def chosen(ranked: Sequence[Passage], top_k: int) -> tuple[Passage, ...]:
    """The first `top_k`, at most half of them of one page unless there are too few others; scored by their place."""
    per_page = max(1, (top_k + 1) // 2)
    taken: Counter[str] = Counter()
    first: list[Passage] = []
    rest: list[Passage] = []
    for passage in ranked:
        taken[passage.document_id] += 1
        (first if taken[passage.document_id] <= per_page else rest).append(passage)
    best = (first + rest)[:top_k]
    return tuple(passage.model_copy(update={"score": 1.0 / place}) for place, passage in enumerate(best, start=1))


def back_to_grader(
    msg: SearchWeb, query: Query | None, passages: tuple[Passage, ...] = (), degraded: tuple[str, ...] = ()
) -> Grade:
    """The next command: what was kept, and what the web brought, to be graded like everything else."""
    step = TrailStep(
        hop=msg.header.hop,
        route=msg.route,
        queries=(query.text,) if query and query.text else (),
        passages=tuple(
            TrailPassage(passage_id=each.passage_id, origin="web", score=round(each.score, 6)) for each in passages
        ),
        reason="" if query else (*degraded, "no web search provider (CAIRN_WEB_PROVIDER)")[0],
    )
    spent = query or Query("")
    header = msg.header.updated(
        step=step, usage=spent.usage, versions=spent.versions, degraded=spent.degraded + degraded
    )
    return Grade(
        header=header,
        asked=msg.asked,
        route=msg.route,
        queries=msg.queries,
        passages=passages,
        evidence=msg.evidence,
        searched_web=True,
    )
