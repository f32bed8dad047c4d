"""What an answer says, sentence by sentence, and whether the passages it cites say so, too. Pure.

A quote stands there word for word. A model paraphrases: half of a sentence's words, by weight, must stand in what it
cites. Across languages neither can be told of a paraphrase, and it is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from evals.running import Run
from services.generator.checking import claims_in
from services.generator.markers import markers_in, without_markers
from shared.contracts import Answered, Passage
from shared.language import SPOKEN, detect_language, fold, terms
from shared.overlap import coverage, distinct_terms

_WORD: Final = re.compile(r"[^\W_]+")
_ARTICLES: Final = frozenset(("a", "an", "the", "le", "la", "les", "l", "un", "une", "des", "du", "d"))
"""What exact match and F1 pass over, as the script of SQuAD does; Russian has none."""
_SUPPORT_FROM: Final = 0.5


def plain(text: str) -> str:
    """Folded words between single blanks, with one at either end: a number must not be found in a longer one."""
    return f" {' '.join(_WORD.findall(fold(text)))} "


def counted_words(text: str) -> list[str]:
    """The words that exact match and F1 compare."""
    return [word for word in plain(text).split() if word not in _ARTICLES]


def said(outcome: Answered) -> list[str]:
    """The sentences that claim something, without markers: no lead-in, no heading."""
    return [without_markers(claim) for claim in claims_in(outcome.answer, outcome.language)]


def support(run: Run, outcome: Answered) -> list[bool]:
    """Of every sentence that can be checked: whether the passages that it cites say so.

    One without a marker, such as a table row, is held against everything that the answer cites.
    """
    passages = passages_of(run)
    cited = {
        citation.n: passages[citation.passage_id] for citation in outcome.citations if citation.passage_id in passages
    }
    checked = []
    for claim in claims_in(outcome.answer, outcome.language):
        numbers = markers_in(claim) or list(cited)
        sources = [cited[number] for number in numbers if number in cited]
        if (holds := _holds(without_markers(claim), sources, outcome.language)) is not None:
            checked.append(holds)
    return checked


def passages_of(run: Run) -> Mapping[str, Passage]:
    """Everything that the answer may rest on, by id."""
    evidence = run.decided.evidence if run.decided is not None else ()
    return {each.passage_id: each for each in (*run.passages, *(one.passage for one in evidence))}


def language_of(outcome: Answered) -> str | None:
    """The language of the answer's own words; None where there are none, or the question's is not one we can tell.

    A quoted answer's own words are its first line: the quotes speak the language of their documents.
    """
    own = outcome.answer.partition("\n")[0] if outcome.writer == "extractive" else without_markers(outcome.answer)
    return detect_language(own) if own and outcome.language in SPOKEN else None


def _holds(claim: str, sources: list[Passage], language: str) -> bool | None:
    if any(plain(claim) in plain(without_markers(source.text)) for source in sources):
        return True
    if sources and all(source.language not in (language, "und") for source in sources):
        return None
    text = "\n".join(part for source in sources for part in (source.title, source.section, source.text))
    return coverage(distinct_terms(claim, language), set(terms(text, language))) >= _SUPPORT_FROM
