"""Whether an answer holds: what its words, numbers and names tell, and how the model's own check is read. Pure.

Numbers are compared as what they may mean, whatever the country's way of writing them: "1.000" is 1000, or 1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from services.generator.decision import Written
from services.generator.markers import FENCED, markers_in, settle, whole_sentences, without_markers
from services.generator.reading import cleaned, mended, written
from shared.clients.judge.replies import read_score
from shared.contracts import Evidence
from shared.language import detect_language, fold, terms
from shared.overlap import coverage, distinct_terms

_SUPPORT_FROM: Final = 0.25
"""Share of a sentence's words that must stand in what it cites; models paraphrase."""
_UNCITED_FROM: Final = 0.5
"""The same for a sentence that cites nothing: in all that the answer cites."""
_TELLING_WORDS: Final = 2
_CONTRADICTS: Final = 0.3
_MISSING_CHARS: Final = 200

_BULLET: Final = re.compile(r"\A\s*(?:[-*•>|]|\d{1,2}[.)]|#{1,6})\s+")
_CODE_NAME: Final = re.compile(r"\b[^\W\d_]+[-_/]?\d(?:[\w./-]*\w)?")
_NUMBER: Final = re.compile(r"\d+(?:(?:[.,'’]|[ \u00a0\u202f](?=\d{3}(?!\d)))\d+)*")
_INNER_WORD: Final = re.compile(r"(?<=[\w,;)] )[^\W\d_][\w'’-]{2,}")
_MONTHS: Final = (
    "jan(?:uary)?|janvier|январ[ья]",
    "feb(?:ruary)?|fevrier|феврал[ья]",
    "mar(?:ch)?|mars|марта?",
    "apr(?:il)?|avril|апрел[ья]",
    "may|mai|ма[йя]",
    "june?|juin|июн[ья]",
    "july?|juillet|июл[ья]",
    "aug(?:ust)?|aout|августа?",
    "sept?(?:ember)?|septembre|сентябр[ья]",
    "oct(?:ober)?|octobre|октябр[ья]",
    "nov(?:ember)?|novembre|ноябр[ья]",
    "dec(?:ember)?|decembre|декабр[ья]",
)
_ANY_MONTH: Final = f"(?:{'|'.join(_MONTHS)})"
_MONTH: Final = re.compile(rf"(?<=\d[ .-]){_ANY_MONTH}\b|\b{_ANY_MONTH}(?=[ .,-]+\d)", re.IGNORECASE)
_COUNTED: Final = {
    word: float(number)
    for counted in (
        "zero one two three four five six seven eight nine ten eleven twelve",
        "zero un deux trois quatre cinq six sept huit neuf dix onze douze",
        "ноль один два три четыре пять шесть семь восемь девять десять одиннадцать двенадцать",
    )
    for number, word in enumerate(counted.split())
}


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why sentence `claim`, an index, seems to lack support. `sure` where a model's word does not count against it."""

    claim: int
    why: str
    sure: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """What the model says of an answer; `unsupported` are indices of its sentences."""

    grounded: float
    answers: float
    unsupported: frozenset[int] = frozenset()
    missing: str = ""


def claims_in(answer: str, language: str) -> list[str]:
    """The sentences that claim something, with their markers: no headings, lead-ins or code."""
    pieces = [piece for prose in FENCED.split(answer)[::2] for piece in whole_sentences(prose, language)]
    claiming = (each for each in pieces if each[0] != "#" and not each.endswith(":"))
    return [each for each in claiming if any(map(str.isalnum, without_markers(each)))]


def flaws(claims: Sequence[str], evidence: Sequence[Evidence], question: str, language: str) -> Iterator[Flaw]:
    """What seems to lack support, each sentence held against the passages it cites; `evidence[n - 1]` is cited as n."""
    everywhere = _Said(evidence, question)
    for place, claim in enumerate(claims):
        numbers = [number for number in markers_in(claim) if number <= len(evidence)]
        said = _Said([evidence[number - 1] for number in numbers], question) if numbers else everywhere
        bare = _BULLET.sub("", without_markers(claim))
        for invented in said.lacks_figures(bare):
            yield Flaw(place, f"{invented} is not in what it cites", sure=True)
        if language not in said.languages:  # words of two languages can't be compared
            if not numbers:
                yield Flaw(place, "it cites no passage")
            continue
        words = set(terms(said.text, language))
        for name in said.lacks_names(bare, language):
            yield Flaw(place, f"{name} is not in what it cites")
        wanted = distinct_terms(bare, language)
        found = coverage(wanted, words)
        if not numbers and found < _UNCITED_FROM:
            yield Flaw(place, "it cites no passage")
        elif len(wanted) >= _TELLING_WORDS and found < _SUPPORT_FROM:
            yield Flaw(place, "what it cites says something else")


class _Said:
    """What some passages say, and the question, whose figures and names may be repeated."""

    def __init__(self, evidence: Sequence[Evidence], question: str) -> None:
        passages = [each.passage for each in evidence]
        self.text = "\n".join(part for each in passages for part in (each.title, each.section, each.text))
        self.languages = {p.language if p.language != "und" else detect_language(p.text) for p in passages}
        self._known = fold(f"{self.text}\n{question}")
        self._values = {value for number in _numbers_in(self._known) for value in (*_readings(number), *_runs(number))}
        self._values |= {_COUNTED[word] for word in re.findall(r"[^\W\d_]+", self._known) if word in _COUNTED}

    def lacks_figures(self, claim: str) -> Iterator[str]:
        """Codes, numbers and dates of the claim that are not there."""
        folded = fold(claim)
        yield from (code for code in _CODE_NAME.findall(folded) if code not in self._known)
        for number in _numbers_in(_CODE_NAME.sub(" ", folded)):
            runs = _runs(number)
            apart = len(runs) > 2 or bool(re.search(r"\s", number))  # a date, or two numbers beside each other
            if self._values.isdisjoint(_readings(number)) and not (apart and self._values.issuperset(runs)):
                yield number

    def lacks_names(self, claim: str, language: str) -> Iterator[str]:
        """Capitalised words within the claim that are not there; in German that is any noun."""
        for word in _INNER_WORD.findall(_MONTH.sub("", claim)) if language != "de" else ():
            if word[0].isupper() and not any(part in self._known for part in (fold(word), *terms(word, language)[:1])):
                yield word


def _numbers_in(folded: str) -> list[str]:
    """Its numbers; the month of a date is one."""
    return _NUMBER.findall(_MONTH.sub(_month, folded))


def _month(found: re.Match[str]) -> str:
    return f" {next(number for number, name in enumerate(_MONTHS, start=1) if re.fullmatch(name, found[0]))} "


def _runs(number: str) -> list[float]:
    return [float(run) for run in re.findall(r"\d+", number)]


def _readings(number: str) -> Iterator[float]:
    """The number with its last separator as a decimal point, and with none."""
    whole = re.sub(r"[\s'’]", "", number)
    head, point, tail = whole.replace(",", ".").rpartition(".")
    yield float(whole.replace(",", "").replace(".", ""))
    if point:
        yield float(f"{head.replace('.', '')}.{tail}")


def read_check(text: str, claims: int) -> Check | None:
    """The model's check of an answer of so many sentences; None where it can't be read, or contradicts itself."""
    said = cleaned(text)
    if not isinstance(found := mended(said[said.find("{") :]), dict):
        return None
    grounded, answers = read_score(found.get("grounded")), read_score(found.get("answers"))
    numbers = {int(number) for number in re.findall(r"-?\d{1,6}", str(found.get("unsupported")))}
    if grounded is None or answers is None or not numbers <= set(range(1, claims + 1)):
        return None
    if grounded < _CONTRADICTS if not numbers else grounded > 1 - _CONTRADICTS and len(numbers) == claims:
        return None
    missing = found.get("missing")
    return Check(
        grounded,
        answers,
        frozenset(number - 1 for number in numbers),
        " ".join(missing.split())[:_MISSING_CHARS] if isinstance(missing, str) else "",
    )


@dataclass(frozen=True, slots=True)
class Weighed:
    """What comes of the checks: `unsupported` are indices of sentences, `finding` is what the model is told."""

    unsupported: frozenset[int]
    finding: str
    trust: float
    """How far to trust the answer, in [0, 1]; 1 where no model was asked."""
    partly_usable: bool
    """Whether what has support answers the question."""
    missing: str = ""


def weigh(claims: Sequence[str], found: Sequence[Flaw], check: Check | None, *, enough: float) -> Weighed:
    """All checks together. `enough` is the lowest grade of an answer that holds. A model is better at words."""
    counted = [flaw for flaw in found if flaw.sure or check is None]
    told = [f"“{claims[flaw.claim]}”: {flaw.why}" for flaw in counted]
    unsupported = frozenset(flaw.claim for flaw in counted)
    if check is None:
        return Weighed(unsupported, "; ".join(told), 1.0, partly_usable=True)
    told += [f"“{claims[claim]}”: the passages do not say it" for claim in sorted(check.unsupported - unsupported)]
    unsupported |= check.unsupported
    if check.grounded < enough and not unsupported:
        told.append("the passages do not say it")
    if check.answers < enough:
        told.append(f"it does not answer the question, missing is: {check.missing or 'the answer'}")
    usable = check.answers >= enough and (check.grounded >= enough or bool(unsupported))
    return Weighed(unsupported, "; ".join(told), min(check.grounded, check.answers), usable, check.missing)


def supported(answer: Written, claims: Sequence[str], unsupported: Collection[int], language: str) -> Written | None:
    """The answer without the sentences that lack support; None where nothing that is cited is left."""
    kept, at = "", 0
    for place, claim in enumerate(claims):
        start = answer.answer.index(claim, at)
        kept += answer.answer[at:start] + (claim if place not in unsupported else "")
        at = start + len(claim)
    settled = settle(kept + answer.answer[at:], len(answer.evidence))
    if not settled.used:
        return None
    mark = f"sentences without support left out: {len(unsupported)} of {len(claims)}"
    return written(settled, answer.evidence, language, (*answer.degraded, mark))
