"""Settings of reading and splitting."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from shared.documents.model import SPLITTER_VERSION
from shared.documents.tokens import way_of_counting
from shared.settings import PositiveSeconds, group
from shared.settings_files import Settings


class ReadSettings(Settings):
    """What `cairn ingest` accepts, and what one file may cost."""

    model_config = group("CAIRN_READ_")

    max_bytes: Annotated[int, Field(ge=1)] = 50_000_000
    """Size of a file above which it is refused."""
    max_unpacked_bytes: Annotated[int, Field(ge=1)] = 200_000_000
    """Size to which a DOCX may unpack."""
    timeout_s: PositiveSeconds = 120.0
    """Longest time for reading and splitting one file."""
    max_memory_bytes: Annotated[int, Field(ge=500_000_000)] = 2_000_000_000
    """Address space that the process that reads may take, beyond that of its libraries; on Linux only."""


class SplitSettings(Settings):
    """Size of passages, in tokens of the embedder in use; see `shared/documents/tokens.py`."""

    model_config = group("CAIRN_SPLIT_")

    target: Annotated[int, Field(ge=16)] = 240
    """Paragraphs of a section are packed together up to this size."""
    max: Annotated[int, Field(ge=16, le=4_000)] = 380
    """No passage is longer; tables and code up to this size stay whole. The embedded model reads 512, headings too."""
    overlap: Annotated[int, Field(ge=0)] = 0
    """Tokens repeated where a text had to be cut; 0 repeats nothing."""
    tokenizer: Path | None = None
    """tokenizer.json of the endpoint's embedder; without it the endpoint's tokens are estimated."""

    @model_validator(mode="after")
    def _in_proportion(self) -> Self:
        if self.target > self.max:
            raise ValueError("CAIRN_SPLIT_TARGET must not exceed CAIRN_SPLIT_MAX")
        if self.overlap > self.target // 2:
            raise ValueError("CAIRN_SPLIT_OVERLAP must be at most half of CAIRN_SPLIT_TARGET")
        return self

    @property
    def fingerprint(self) -> str:
        """What passages depend on besides the document, e.g. `2/240-380+0/e5`: another one, other passages."""
        return f"{SPLITTER_VERSION}/{self.target}-{self.max}+{self.overlap}/{way_of_counting(self.tokenizer)}"
