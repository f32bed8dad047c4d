"""Settings of reading and splitting."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings

from shared.settings import group


class ReadSettings(BaseSettings):
    """What `cairn ingest` accepts."""

    model_config = group("CAIRN_READ_")

    max_bytes: Annotated[int, Field(ge=1)] = 50_000_000
    """Size of a file above which it is refused."""


class SplitSettings(BaseSettings):
    """Size of passages, in characters."""

    model_config = group("CAIRN_SPLIT_")

    target: Annotated[int, Field(ge=50)] = 900
    """Paragraphs of a section are packed together up to this size."""
    max: Annotated[int, Field(ge=50, le=20_000)] = 1_400
    """No passage is longer; tables and code up to this size stay whole."""
    overlap: Annotated[int, Field(ge=0)] = 0
    """Characters repeated where a text had to be cut; 0 repeats nothing."""

    @model_validator(mode="after")
    def _in_proportion(self) -> Self:
        if self.target > self.max:
            raise ValueError("CAIRN_SPLIT_TARGET must not exceed CAIRN_SPLIT_MAX")
        if self.overlap > self.target // 2:
            raise ValueError("CAIRN_SPLIT_OVERLAP must be at most half of CAIRN_SPLIT_TARGET")
        return self
