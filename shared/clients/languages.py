"""What the embedder makes of the language a text is in, measured with the same sentences in each.

Embedders of many languages put texts of one language near each other, whatever they say: a Russian question meets
every Russian passage before the English one that answers it. The mean vector of the same few sentences in a language
is what its texts have in common but not in meaning; the cosine of a question with it is a baseline, and what a passage
has beyond the baseline of its language is what counts. (Subtracting language means goes back to Libovický et al. 2020,
arXiv 2004.05160.) Within one language nothing changes. The sentences are ours.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping
from typing import Final

import numpy as np
import structlog

from shared.clients.embedder import Embedder, Vector
from shared.errors import CairnError

_log = structlog.get_logger("cairn")

SENTENCES: Final[Mapping[str, tuple[str, ...]]] = {
    "en": (
        "How do I change the password of my account?",
        "When does the shop open on Sundays?",
        "Who wrote this novel?",
        "How many people live in the city?",
        "Why did the war begin?",
        "Which medicine lowers blood pressure?",
        "How do plants turn light into energy?",
        "How do I install the package on a server?",
        "What happens if the payment is late?",
        "In which year was the bridge built?",
        "Can I return a product without a receipt?",
        "Who is responsible for safety at work?",
        "What does this error message mean?",
        "How is the tax calculated?",
        "When did the composer die?",
        "What is the minimum age for a licence?",
    ),
    "fr": (
        "Comment changer le mot de passe de mon compte ?",
        "À quelle heure le magasin ouvre-t-il le dimanche ?",
        "Qui a écrit ce roman ?",
        "Combien de personnes vivent dans cette ville ?",
        "Pourquoi la guerre a-t-elle commencé ?",
        "Quel médicament fait baisser la tension artérielle ?",
        "Comment les plantes transforment-elles la lumière en énergie ?",
        "Comment installer le paquet sur un serveur ?",
        "Que se passe-t-il si le paiement est en retard ?",
        "En quelle année le pont a-t-il été construit ?",
        "Puis-je rendre un produit sans le ticket de caisse ?",
        "Qui est responsable de la sécurité au travail ?",
        "Que signifie ce message d'erreur ?",
        "Comment l'impôt est-il calculé ?",
        "Quand le compositeur est-il mort ?",
        "Quel est l'âge minimum pour obtenir un permis ?",
    ),
    "ru": (
        "Как сменить пароль моей учётной записи?",
        "Во сколько магазин открывается по воскресеньям?",
        "Кто написал этот роман?",
        "Сколько людей живёт в городе?",
        "Почему началась война?",
        "Какое лекарство снижает артериальное давление?",
        "Как растения превращают свет в энергию?",
        "Как установить пакет на сервере?",
        "Что будет, если платёж просрочен?",
        "В каком году был построен мост?",
        "Можно ли вернуть товар без чека?",
        "Кто отвечает за безопасность на работе?",
        "Что означает это сообщение об ошибке?",
        "Как рассчитывается налог?",
        "Когда умер композитор?",
        "С какого возраста можно получить права?",
    ),
}


class LanguageMeans:
    """The mean passage vector of each language, measured by the embedder in use at the first need."""

    def __init__(self, embedder: Embedder, *, patience_s: float = 5.0, again_s: float = 30.0) -> None:
        """A caller waits at most `patience_s`; a failed measurement is tried again after `again_s`."""
        self._embedder = embedder
        self._patience_s, self._again_s = patience_s, again_s
        self._again_at = 0.0
        self._means: Mapping[str, Vector] = {}
        self._measuring: asyncio.Task[None] | None = None

    async def get(self) -> Mapping[str, Vector]:
        """Mean of unit vectors by ISO 639-1 code; empty while they can't be had: then languages are not evened out.

        One measurement serves all callers, and goes on when they have lost patience: passages that are just being
        ingested, or an endpoint that hangs, must not cost a question its deadline.
        """
        if not self._means and self._measuring is None and time.monotonic() >= self._again_at:
            self._measuring = asyncio.create_task(self._measure())
        if (task := self._measuring) is not None:
            await asyncio.wait({task}, timeout=self._patience_s)
            if task.done():
                self._measuring = None if self._measuring is task else self._measuring
                task.result()
        return self._means

    async def _measure(self) -> None:
        texts = [text for sentences in SENTENCES.values() for text in sentences]
        try:
            vectors = await self._embedder.embed_passages(texts)
        except CairnError as error:
            _log.warning("languages not measured: passages in the question's language go first", error=str(error))
            self._again_at = time.monotonic() + self._again_s
            return
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        means = vectors.reshape(len(SENTENCES), -1, vectors.shape[1]).mean(axis=1)
        self._means = dict(zip(SENTENCES, means, strict=True))


def baseline_of(language: str, baselines: Mapping[str, float]) -> float | None:
    """That of the language, or the mean of all for one that was not measured; None where none was."""
    if not baselines:
        return None
    return baselines.get(language, statistics.fmean(baselines.values()))


def baselines(question: Vector, means: Mapping[str, Vector]) -> dict[str, float]:
    """Cosine that any text of a language has with this question, by ISO 639-1 code."""
    length = max(float(np.linalg.norm(question)), 1e-9)
    return {language: float(question @ mean) / length for language, mean in means.items()}
