"""How the retriever searches."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings

from services.retriever.decision import Fusion, RetrievalPolicy
from shared.settings import group


class RetrieverSettings(BaseSettings):
    """Candidates of each arm, and how the lists become one."""

    model_config = group("CAIRN_RETRIEVER_")

    fusion: Fusion = "zscore"
    """zscore: by standardised scores; rrf: by ranks (worse on every set we measured, docs/decisions/0004)."""
    candidates: Annotated[int, Field(ge=1, le=500)] = 40
    duplicate_overlap: Annotated[float, Field(gt=0, le=1)] = 0.9

    def policy(self, collection: str) -> RetrievalPolicy:
        """These settings as a value; `collection` is for jobs that name none."""
        return RetrievalPolicy(
            collection=collection,
            fusion=self.fusion,
            candidates=self.candidates,
            duplicate_overlap=self.duplicate_overlap,
        )
