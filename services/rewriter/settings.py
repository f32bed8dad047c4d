"""How the rewriter works."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings

from shared.settings import group


class RewritingPolicy(BaseSettings):
    """Bounds of what is asked of the model, where there is one."""

    model_config = group("CAIRN_REWRITER_")

    max_queries: Annotated[int, Field(ge=1, le=4)] = 4
    timeout_s: Annotated[float, Field(gt=0)] = 15.0
    max_tokens: Annotated[int, Field(ge=32)] = 400
    share_of_time: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """Of the time to the deadline, what rewriting may take at most."""
