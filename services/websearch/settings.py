"""How the web search works; providers are `CAIRN_WEB_*`, pages `CAIRN_PAGES_*`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from services.websearch.decision import WebPolicy
from shared.settings import PositiveSeconds, group
from shared.settings_files import Settings


class WebSearchSettings(Settings):
    """How much is read of what was found, and for how long."""

    model_config = group("CAIRN_WEBSEARCH_")

    results: Annotated[int, Field(ge=1, le=20)] = 10
    pages: Annotated[int, Field(ge=0, le=20)] = 5
    candidates: Annotated[int, Field(ge=1, le=100)] = 24
    query_timeout_s: PositiveSeconds = 5.0
    pages_timeout_s: PositiveSeconds = 6.0
    embed_timeout_s: PositiveSeconds = 8.0

    @property
    def policy(self) -> WebPolicy:
        return WebPolicy(**self.model_dump())
