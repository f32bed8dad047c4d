"""How the retriever searches."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from shared.settings import group


class RetrievalPolicy(BaseSettings):
    """Candidates of each arm, and how their lists become one."""

    model_config = group("CAIRN_RETRIEVER_")

    fusion: Literal["rrf", "zscore"] = "rrf"
    """rrf: by ranks (robust); zscore: by standardised scores."""
    candidates: Annotated[int, Field(ge=1, le=1000)] = 40
    """Passages that each arm brings for each query."""
    duplicate_overlap: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of common terms (Jaccard) from which two passages count as one."""
