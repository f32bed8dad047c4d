"""Which web passages are kept, and how they come into the index."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis

from services.grader.keeping import Keeper, keepable, message_of, open_keeper
from services.grader.settings import GraderSettings
from shared.contracts import Evidence, Ingest, Passage, PassageGrade
from shared.runtime.common import Common
from shared.runtime.keys import Keys


def found(score: float | None, fetched_at: float | None = 1_000_000.0, **fields: Any) -> Evidence:
    passage = Passage(
        **{
            "passage_id": "p",
            "document_id": "https://a.example/x",
            "title": "A",
            "uri": "https://a.example/x",
            "text": "Tents are dry.",
            "language": "en",
            "origin": "web",
            "tenant": "acme",
            "fetched_at": fetched_at,
            **fields,
        }
    )
    return Evidence(passage=passage, grade=PassageGrade(score=score), strips=())


def test_only_relevant_passages_of_pages_that_were_read_are_kept() -> None:
    good = found(0.7)
    assert list(keepable([good, found(0.69), found(None), found(0.9, None)], upper=0.7)) == [good]


def test_a_kept_passage_is_its_tenants_names_its_source_and_expires() -> None:
    message = message_of(found(0.9), collection="web", days=2)
    document = message.document
    assert (document.tenant, document.collection, document.uri) == ("acme", "web", "https://a.example/x")
    assert document.valid_to == "1970-01-14T13:46:40+00:00"
    assert document.owner == "web search"
    assert [draft.text for draft in message.passages] == ["Tents are dry."]
    assert message_of(found(0.9), collection="web", days=2).document == document  # again is the same document
    other = message_of(found(0.9, passage_id="q"), collection="web", days=2)
    assert other.document.document_id != document.document_id


@pytest.mark.parametrize("uri", ["https://a.example/" + "x" * 2000, "https://a.example/é?q=%00"])
def test_any_address_makes_a_valid_message(uri: str) -> None:
    message_of(found(0.9, uri=uri), collection="web", days=1)


async def test_they_go_to_the_ingest_inbox_and_a_silent_redis_stops_no_job(redis: Redis, keys: Keys) -> None:
    keeper = open_keeper(GraderSettings(keep_web="web", _env_file=None), Common(redis, keys))
    assert keeper is not None
    await keeper.keep([found(0.9), found(0.1)])
    entries: Any = await redis.xrange(keys.inbox("ingest"))
    assert [Ingest.model_validate_json(fields[b"data"]).document.collection for _, fields in entries] == ["web"]
    away = Redis.from_url("redis://127.0.0.1:1/0")
    await Keeper(Common(away, keys), collection="web", days=1, upper=0.7).keep([found(0.9)])
    await away.aclose()
    assert open_keeper(GraderSettings(_env_file=None), Common(redis, keys)) is None
