"""When the generator answers, and how much it shows the model."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings

from shared.settings import PositiveSeconds, group


class AnsweringPolicy(BaseSettings):
    """Bounds of one answer."""

    model_config = group("CAIRN_GENERATOR_")

    answer_from: Annotated[float, Field(ge=0, le=1)] = 0.45
    """An ambiguous retrieval whose best grade is below this is not answered."""
    passage_tokens: Annotated[int, Field(ge=100)] = 3000
    """Estimated tokens of passages shown to the model, most relevant first."""
    answer_tokens: Annotated[int, Field(ge=16)] = 800
    """Tokens the model may write; an answer cut there keeps its whole sentences."""
    history_turns: Annotated[int, Field(ge=0, le=20)] = 4
    """Latest turns of the conversation shown to the model."""
    history_chars: Annotated[int, Field(ge=0)] = 2000
    """Characters of all those turns together."""
    timeout_s: PositiveSeconds = 45.0
    """Longest wait for the model; less where the job's deadline is nearer."""
