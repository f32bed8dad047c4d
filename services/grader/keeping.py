"""Web passages that helped, kept for later questions in a collection of their own, for a time. Off by default."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog
from redis.exceptions import RedisError

from services.grader.settings import GraderSettings
from shared.contracts import Document, Evidence, Ingest, PassageDraft
from shared.runtime.common import Common

_OWNER: Final = "web search"

_log = structlog.get_logger("cairn")


def keepable(evidence: Sequence[Evidence], *, upper: float) -> Iterator[Evidence]:
    """Passages of pages that were read and found relevant; a search engine's excerpt is too little to keep. Pure."""
    for each in evidence:
        if each.passage.fetched_at is not None and each.grade.score is not None and each.grade.score >= upper:
            yield each


def message_of(evidence: Evidence, *, collection: str, days: float) -> Ingest:
    """The message that puts one passage into the index, for its asker's tenant, until it is `days` old. Pure.

    Each passage is a document by itself: another question may bring another part of the same page.
    """
    passage = evidence.passage
    assert passage.fetched_at is not None
    expires = datetime.fromtimestamp(passage.fetched_at, UTC) + timedelta(days=days)
    document = Document(
        document_id=f"{passage.uri[:400]}#{passage.passage_id}",
        title=passage.title,
        uri=passage.uri,
        content_hash=hashlib.sha256(passage.text.encode()).hexdigest(),
        collection=collection,
        tenant=passage.tenant,
        language=passage.language,
        owner=_OWNER,
        valid_to=expires.isoformat(timespec="seconds"),
    )
    draft = PassageDraft(ordinal=0, section=passage.section, text=passage.text, language=passage.language)
    return Ingest(
        run_id=f"web-{secrets.token_hex(6)}",
        document=document,
        passage_total=1,
        passages=(draft,),
        submitted_at=passage.fetched_at,
    )


class Keeper:
    """Publishes them to the retriever's ingest inbox. Twice is no harm: the same passage is the same document."""

    def __init__(self, common: Common, *, collection: str, days: float, upper: float) -> None:
        self._common = common
        self._collection = collection
        self._days = days
        self._upper = upper

    async def keep(self, evidence: Sequence[Evidence]) -> None:
        """Keep what is worth it; while Redis is away nothing is, and the job goes on."""
        redis: Any = self._common.redis
        for each in keepable(evidence, upper=self._upper):
            message = message_of(each, collection=self._collection, days=self._days)
            try:
                await redis.xadd(self._common.keys.inbox(message.inbox), {"data": message.model_dump_json()})
            except (RedisError, OSError) as away:
                _log.warning("can't keep a web passage", uri=each.passage.uri, error=str(away))


def open_keeper(settings: GraderSettings, common: Common) -> Keeper | None:
    """The keeper that the settings ask for, or None."""
    if settings.keep_web is None:
        return None
    return Keeper(common, collection=settings.keep_web, days=settings.keep_web_days, upper=settings.upper)
