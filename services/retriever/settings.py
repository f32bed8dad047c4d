"""How the retriever searches."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from services.retriever.decision import RetrievalPolicy
from services.retriever.fusion import Fusion
from shared.settings import group
from shared.settings_files import Settings


class RetrieverSettings(Settings):
    """Candidates of each arm, how the lists become one, and how much of it is kept."""

    model_config = group("CAIRN_RETRIEVER_")

    fusion: Fusion = "zscore"
    """zscore: by standardised scores; dbsf, rrf: worse on the sets we measured (docs/decisions/0004)."""
    candidates: Annotated[int, Field(ge=1, le=500)] = 40
    feedback: Annotated[int, Field(ge=0, le=5)] = 3
    feedback_weight: Annotated[float, Field(ge=0, le=1)] = 0.17
    top_k: Annotated[int, Field(ge=1, le=50)] = 8
    top_k_comparative: Annotated[int, Field(ge=1, le=50)] = 12
    duplicate_overlap: Annotated[float, Field(gt=0, le=1)] = 0.9
    rerank_candidates: Annotated[int, Field(ge=1, le=200)] = 40

    def policy(self, collection: str) -> RetrievalPolicy:
        """These settings as a value; `collection` is for jobs that name none."""
        return RetrievalPolicy(collection=collection, **self.model_dump())
