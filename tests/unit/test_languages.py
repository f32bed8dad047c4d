"""Baselines of languages: what a question shares with any text of a language."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from shared.clients.embedder import Vectors
from shared.clients.languages import SENTENCES, LanguageMeans, baselines
from shared.errors import EmbedderUnavailable
from shared.language import detect_language
from tests.support.wait import wait_until


class ByLanguage:
    """Every text of a language has the same vector, of length 5, in a direction of its own."""

    fingerprint = "by-language"
    dimension = 3

    def __init__(self) -> None:
        self.calls = 0
        self.failure: Exception | None = None
        self.held: asyncio.Event | None = None

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        self.calls += 1
        if self.held is not None:
            await self.held.wait()
        if self.failure is not None:
            raise self.failure
        places = ["en", "fr", "ru"]
        return np.stack([5 * np.eye(3, dtype=np.float32)[places.index(detect_language(text))] for text in texts])

    async def embed_questions(self, texts: Sequence[str]) -> Vectors:
        return await self.embed_passages(texts)

    async def aclose(self) -> None:
        pass


def test_the_sentences_are_the_same_in_number_and_each_in_its_language() -> None:
    assert len({len(texts) for texts in SENTENCES.values()}) == 1
    for language, texts in SENTENCES.items():
        assert {detect_language(text) for text in texts} == {language}
        assert len(set(texts)) == len(texts)


async def test_means_are_measured_once_and_of_unit_vectors() -> None:
    embedder = ByLanguage()
    means = LanguageMeans(embedder)
    found = await means.get()
    assert found is await means.get()
    assert embedder.calls == 1
    assert {language: list(mean) for language, mean in found.items()} == {
        "en": [1, 0, 0],
        "fr": [0, 1, 0],
        "ru": [0, 0, 1],
    }


async def test_a_failing_embedder_leaves_them_for_the_next_time() -> None:
    embedder = ByLanguage()
    embedder.failure = EmbedderUnavailable("down")
    means, waiting = LanguageMeans(embedder, again_s=0.0), LanguageMeans(embedder)
    assert await means.get() == await waiting.get() == {}
    embedder.failure = None
    assert set(await means.get()) == {"en", "fr", "ru"}
    assert (await waiting.get(), embedder.calls) == ({}, 3)  # not asked again by every question


async def test_an_embedder_that_hangs_costs_no_question_its_time_and_is_asked_once() -> None:
    embedder = ByLanguage()
    embedder.held = asyncio.Event()
    means = LanguageMeans(embedder, patience_s=0.01)
    assert [await means.get(), *await asyncio.gather(means.get(), means.get())] == [{}, {}, {}]
    embedder.held.set()
    await wait_until(means.get)
    assert (set(await means.get()), embedder.calls) == ({"en", "fr", "ru"}, 1)


def test_a_baseline_is_a_cosine_whatever_the_question_s_length() -> None:
    means = {"en": np.array([0.8, 0.0], dtype=np.float32), "ru": np.array([0.0, 0.5], dtype=np.float32)}
    found = baselines(np.array([3.0, 4.0], dtype=np.float32), means)
    assert found == pytest.approx({"en": 0.6 * 0.8, "ru": 0.8 * 0.5})
    assert baselines(np.zeros(2, dtype=np.float32), means) == {"en": 0.0, "ru": 0.0}
