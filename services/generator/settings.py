"""When the generator answers, how much it shows the model, and how it checks what the model says."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shared.settings import PositiveSeconds, group
from shared.settings_files import Settings

Share = Annotated[float, Field(ge=0, le=1)]


class AnsweringPolicy(Settings):
    """Bounds of one answer."""

    model_config = group("CAIRN_GENERATOR_")

    answer_from: Share = 0.45
    """An ambiguous retrieval whose best grade is below this is not answered."""
    passage_tokens: Annotated[int, Field(ge=100)] = 3000
    """Estimated tokens of passages shown to the model."""
    answer_tokens: Annotated[int, Field(ge=16)] = 800
    """Tokens the model may write; an answer cut there keeps its whole sentences."""
    history_turns: Annotated[int, Field(ge=0, le=20)] = 4
    """Latest turns of the conversation shown to the model."""
    history_chars: Annotated[int, Field(ge=0)] = 2000
    """Characters of all those turns together."""
    timeout_s: PositiveSeconds = 45.0
    """Longest wait for the model; less where the job's deadline is nearer."""
    self_check: bool = True
    """Ask the model, in a second call, whether its answer holds. Words, numbers and names are checked anyway."""
    check_from: Share = 0.5
    """An answer that the self-check grades below this, as grounded or as an answer, is written again or not given."""
    watched_answers: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Latest answers of the model, over all workers, of which a share must hold."""
    grounded_share: Share = 0.5
    """Below this share of them, generation is switched off; 0 never switches it off."""
    owners: dict[str, str] = Field(default_factory=dict)
    """JSON: {"collection": "whom to ask", …}, named where a collection does not answer."""
