"""Words as sparse vectors: what counts as a word, and that the dot product is BM25."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.clients.index.lexical import (
    AVERAGE_TERMS,
    K1,
    STOP_WORD_WEIGHT,
    SparseVector,
    encode_passage,
    encode_query,
    tokenise,
)


def overlap(question: str, passage: str, asked_in: str, written_in: str) -> float:
    query, document = encode_query(question, asked_in), encode_passage(passage, written_in)
    weights = dict(zip(document.indices, document.values, strict=True))
    return sum(weight * weights.get(index, 0.0) for index, weight in zip(query.indices, query.values, strict=True))


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The NK-T2-310.", ["the", "nk-t2-310", "nk", "t2", "310"]),
        ("Error E1234!", ["error", "e1234"]),
        ("on 2026-11-30,", ["on", "2026-11-30", "2026", "11", "30"]),
        ("CAIRN_QDRANT_URL", ["cairn_qdrant_url", "cairn", "qdrant", "url"]),
        ("config.yaml:", ["config.yaml", "config", "yaml"]),
        ("state-of-the-art", ["state", "of", "the", "art"]),
        ("L’École d'été", ["l", "ecole", "d", "ete"]),
        ("ЁЛКИ ещё Й", ["елки", "еще", "й"]),
        ("ﬁle ２０２６", ["file", "2026"]),
        ("zero\u200bwidth soft\u00adhyphen", ["zerowidth", "softhyphen"]),
        ("— … !", []),
        ("", []),
    ],
)
def test_words_and_identifiers(text: str, terms: list[str]) -> None:
    assert list(tokenise(text)) == terms


@pytest.mark.parametrize(
    ("question", "passage", "asked_in", "written_in"),
    [
        ("возврата палаток", "Возврат палатки", "ru", "ru"),
        ("Возврат", "о возвратах", "ru", "und"),
        ("résiliations", "résilier", "fr", "fr"),
        ("resiliation", "La résiliation", "fr", "fr"),
        ("returned", "returns", "en", "en"),
        ("Как настроить Redis?", "Redis is set up by its file.", "ru", "en"),
        ("Streams in Redis", "Потоки (streams) Redis", "en", "ru"),
        ("what is NK-T2-310", "chauffage NK-T2-310", "en", "fr"),
        ("what is NK-T2-310", "NK T2/310", "en", "und"),
    ],
)
def test_forms_and_languages_meet(question: str, passage: str, asked_in: str, written_in: str) -> None:
    assert overlap(question, passage, asked_in, written_in) > 0


def test_different_words_do_not_meet() -> None:
    assert overlap("tents", "returns", "en", "en") == 0
    assert overlap("E1234", "E1235", "en", "en") == 0


def test_stop_words_count_less_but_are_not_lost() -> None:
    assert set(encode_query("the computer tent", "en").values) == {STOP_WORD_WEIGHT, 1.0}
    assert set(encode_query("the tent", "en").values) == {1.0}
    assert overlap("to be or not to be", "To be, or not to be: that is the question.", "en", "en") > 0


def test_short_stop_words_do_not_meet_across_languages() -> None:
    assert overlap("À quelle heure ?", "A tent is a house.", "fr", "en") == 0


def test_a_term_weighs_more_the_oftener_it_stands_and_the_shorter_the_passage() -> None:
    def weight(passage: str) -> float:
        return overlap("tent", passage, "en", "en")

    once, twice, often = weight("tent peg rope"), weight("tent tent peg"), weight("tent " * 500)
    assert once < twice < K1 + 1
    assert often < K1 + 1
    assert weight("tent " + "peg " * 300) < once
    usual = "tent " + "peg " * (AVERAGE_TERMS - 1)
    assert weight(usual) == pytest.approx(1.0)


@given(st.text(max_size=300), st.sampled_from(["en", "fr", "ru", "de", "und"]))
def test_any_text_gives_a_sound_vector(text: str, language: str) -> None:
    for vector in (encode_passage(text, language), encode_query(text, language)):
        assert isinstance(vector, SparseVector)
        assert list(vector.indices) == sorted(set(vector.indices))
        assert all(0 <= index < 2**32 for index in vector.indices)
        assert all(math.isfinite(value) and value > 0 for value in vector.values)
        assert bool(vector) == any(True for _ in tokenise(text))


@given(st.text(min_size=1, max_size=80))
def test_a_passage_is_found_by_its_own_text(text: str) -> None:
    if list(tokenise(text)):
        assert overlap(text, text, "en", "en") > 0


def test_threads_may_encode_at_once() -> None:
    texts = [f"policies returned {number} возвраты палаток études" for number in range(200)]
    expected = [encode_passage(text, "en") for text in texts]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda text: encode_passage(text, "en"), texts)) == expected
