"""What the embedded judge looks at: one passage and the question, nothing of the list they came in. Pure.

Ranks and gaps to the neighbours look excellent in tests and are a trap: where no passage holds the answer, the best of
them still has rank 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from shared.contracts import Passage
from shared.language import SPOKEN, detect_language, sentences, terms
from shared.overlap import coverage, shared_pairs

_WORD: Final = re.compile(r"[^\W_]+")
_SAME_WORDS: Final = 0.5
"""With this much of the question's words in it, a passage is in the question's language whatever was detected."""


@dataclass(frozen=True, slots=True)
class AskedWords:
    """A question, taken apart once for all its passages."""

    language: str
    terms: tuple[str, ...]
    distinct: tuple[str, ...]
    names: tuple[str, ...]
    """Of words with a capital (but the first) or a digit."""

    @classmethod
    def of(cls, question: str, language: str) -> AskedWords:
        found = tuple(terms(question, language))
        words = _WORD.findall(question)
        named = [word for place, word in enumerate(words) if word[0].isdigit() or (place and word[0].isupper())]
        names = dict.fromkeys(term for word in named for term in terms(word, language))
        return cls(language, found, tuple(dict.fromkeys(found)), tuple(names))


@dataclass(frozen=True, slots=True)
class Features:
    """All in [0, 1], but similarity, a cosine, and above, what it has beyond any text in the passage's language; None
    where there are no vectors.
    """

    same_language: bool
    similarity: float | None
    above: float | None
    coverage: float
    """Of the question's words by title, section and text together."""
    best_sentence: float
    """Of the question's words by one sentence."""
    pairs: float
    """Share of the question's word pairs."""
    names: float
    """Of the question's names and numbers; coverage where it has none."""
    title: float
    """Of the question's words by title and section alone."""


def features_of(asked: AskedWords, passage: Passage) -> Features:
    """What is known of this passage in the light of this question."""
    language = passage.language if passage.language in SPOKEN else detect_language(passage.text)
    heading = f"{passage.title}\n{passage.section}"
    in_heading = terms(heading, asked.language)
    in_text = terms(passage.text, asked.language)
    present = {*in_heading, *in_text}
    covered = coverage(asked.distinct, present)
    return Features(
        same_language=language == asked.language or covered >= _SAME_WORDS,
        similarity=passage.similarity,
        above=None if passage.similarity is None or passage.baseline is None else passage.similarity - passage.baseline,
        coverage=covered,
        best_sentence=max(
            (
                coverage(asked.distinct, set(terms(sentence, asked.language)))
                for sentence in sentences(passage.text, language)
            ),
            default=0.0,
        ),
        pairs=shared_pairs(asked.terms, [*in_heading, *in_text]),
        names=coverage(asked.names, present) if asked.names else covered,
        title=coverage(asked.distinct, set(in_heading)),
    )


def embedded_text(passage: Passage) -> str:
    """What is embedded of a passage that came without a similarity: what the index embeds, too."""
    return f"{passage.title}\n{passage.text}"
