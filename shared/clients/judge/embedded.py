"""The embedded judge: logistic regressions over a handful of features, fitted by `python -m evals.fit_judge`.

No model is called, so grading ten passages takes milliseconds. Three small models, each for what is known:

    same_language    vectors and words: question and passage share a language
    cross_language   vectors alone, above what any text of the language has: words in common mean nothing here
    words_alone      no vectors, or vectors of another embedder than the one the fit saw

A passage in another language than the question, without usable vectors, can't be judged and stays ungraded.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from shared.clients.judge.features import AskedWords, Features, embedded_text, features_of
from shared.clients.judge.protocol import STAGE, Enough, Grading
from shared.clients.judge.replies import ungraded
from shared.clients.languages import LanguageMeans, baseline_of, baselines
from shared.contracts import Passage, PassageGrade, StageUsage
from shared.errors import CairnError

if TYPE_CHECKING:
    from shared.clients.embeddings import Embedder

COEFFICIENTS: Final = "coefficients.json"
_TIME_SHARE: Final = 0.5
_MAX_EMBEDDED: Final = 16
"""Passages embedded at most for one question; about half a second of one core each."""


@dataclass(frozen=True, slots=True)
class LogisticModel:
    """`weights` by the name of the feature."""

    intercept: float
    weights: Mapping[str, float]

    def probability(self, features: Features) -> float:
        """That the passage helps, in (0, 1)."""
        logit = self.intercept + sum(weight * getattr(features, name) for name, weight in self.weights.items())
        return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, logit))))


@dataclass(frozen=True, slots=True)
class Coefficients:
    """What the fit left behind. `embedder` begins the fingerprint of the embedder whose cosines it saw."""

    version: str
    embedder: str
    models: Mapping[str, LogisticModel]

    @classmethod
    def of(cls, fitted: Mapping[str, Any]) -> Coefficients:
        models = {name: LogisticModel(each["intercept"], each["weights"]) for name, each in fitted["models"].items()}
        return cls(fitted["version"], fitted["embedder"], models)


@lru_cache(maxsize=1)
def shipped() -> Coefficients:
    """The coefficients in the package."""
    return Coefficients.of(json.loads(resources.files(__package__).joinpath(COEFFICIENTS).read_text("utf-8")))


class EmbeddedJudge:
    """Judges by similarity and words in common. Passages without a similarity are embedded first, if it can."""

    def __init__(
        self,
        embedder: Embedder | None,
        *,
        coefficients: Coefficients | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._embedder = embedder
        self._languages = LanguageMeans(embedder) if embedder is not None else None
        self._coefficients = coefficients or shipped()
        self._clock = clock
        self._vectors_count = embedder is None or embedder.fingerprint.startswith(self._coefficients.embedder)

    @property
    def name(self) -> str:
        return "embedded"

    @property
    def version(self) -> str:
        return self._coefficients.version

    async def grade_all(
        self,
        question: str,
        language: str,
        passages: Sequence[Passage],
        *,
        deadline: float,
        max_calls: int | None = None,
        enough: Enough | None = None,
    ) -> Grading:
        passages, degraded = await self._with_similarity(question, passages, deadline)
        asked = AskedWords.of(question, language)
        grades = tuple(self.grade(features_of(asked, passage)) for passage in passages)
        return Grading(grades, StageUsage(stage=STAGE), degraded)

    async def aclose(self) -> None:
        """Nothing of its own is open."""

    def grade(self, features: Features) -> PassageGrade:
        """The grade of one passage by what is known of it."""
        has_vector = features.similarity is not None and self._vectors_count
        if not features.same_language:
            if not has_vector or features.above is None:
                return ungraded("in another language than the question, and there are no vectors to compare")
            score = self._coefficients.models["cross_language"].probability(features)
            return PassageGrade(score=score, reason=f"other language, similarity {features.above:.2f} above any text")
        score = self._coefficients.models["same_language" if has_vector else "words_alone"].probability(features)
        known = [f"similarity {features.similarity:.2f}"] if has_vector else []
        return PassageGrade(score=score, reason=", ".join([*known, f"{features.coverage:.0%} of the question's words"]))

    async def _with_similarity(
        self, question: str, passages: Sequence[Passage], deadline: float
    ) -> tuple[Sequence[Passage], tuple[str, ...]]:
        """The passages, those without a similarity given one where there is an embedder the fit knows."""
        missing = [n for n, passage in enumerate(passages) if passage.similarity is None][:_MAX_EMBEDDED]
        if not missing or self._embedder is None or not self._vectors_count:
            return passages, ()
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock()) * _TIME_SHARE):
                asked, found = await asyncio.gather(
                    self._embedder.embed_questions([question]),
                    self._embedder.embed_passages([embedded_text(passages[n]) for n in missing]),
                )
                shared = baselines(asked[0], await self._languages.get()) if self._languages is not None else {}
        except (CairnError, TimeoutError):
            return passages, ("embedder unavailable: judged by words alone",)
        cosines = found @ asked[0] / (np.linalg.norm(found, axis=1) * np.linalg.norm(asked[0]) + 1e-12)
        known = dict(zip(missing, (float(cosine) for cosine in cosines), strict=True))
        return (
            [
                passage.model_copy(update={"similarity": known[n], "baseline": baseline_of(passage.language, shared)})
                if n in known
                else passage
                for n, passage in enumerate(passages)
            ],
            (),
        )
