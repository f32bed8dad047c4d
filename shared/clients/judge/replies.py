"""Reading a judge model's reply. Pure.

A reply that can't be read without guessing gives an ungraded passage and the reason: out of range, contradictory,
missing, cut off. Broken JSON is json-repair's to mend; what is here decides which part of a reply is the grade.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from shared.clients.chat import without_reasoning
from shared.clients.json_replies import mended
from shared.contracts import PassageGrade, Relevance

_SPECIAL_TOKENS: Final = re.compile(
    r"<\|[^<>|\s]{1,40}\|>|</?(?:s|eos|bos|end_of_turn|pad)>|\[/?TOOL_CALLS\]|\[/?INST\]"
)
_DECIMAL_COMMA: Final = re.compile(r"(?<=:)(\s*\d+),(\d+)(?=\s*[,}])")
_NUMBER: Final = re.compile(r"[+-]?\d*(?:[.,]\d+)?(?:[eE][+-]?\d+)?")
_FRACTION: Final = re.compile(r"(\d+(?:[.,]\d+)?)\s*/\s*(\d+(?:[.,]\d+)?)")
_PERCENT: Final = re.compile(r"(\d+(?:[.,]\d+)?)\s*%")
_LABELLED: Final = re.compile(
    r"\b(?:relevance[ _]score|score|relevance)\b[\"'`*\s]*[:=][\"'`*\s]*"
    r"(\d+(?:[.,]\d+)?\s*/\s*\d+|\d+(?:[.,]\d+)?\s*%|[01]?[.,]\d+)(?![\d/%])",
    re.IGNORECASE,
)
_LEAF: Final = re.compile(r"\{[^{}]*\}")
_SCORE_KEYS: Final = ("score", "relevance_score")
_ENVELOPES: Final = ("parameters", "arguments", "properties", "result", "grade", "evaluation", "response", "output")
_RELEVANCE: Final[dict[str, Relevance]] = {
    "relevant": "relevant",
    "partial": "partial",
    "partially relevant": "partial",
    "irrelevant": "irrelevant",
    "not relevant": "irrelevant",
}
_MAX_CHARS: Final = 20_000
_ID_KEY: Final = "id"
_MAX_DEPTH: Final = 3
_REASON_CHARS: Final = 300
_CONTRADICTS_BELOW: Final = 0.3
_CONTRADICTS_ABOVE: Final = 0.7


def ungraded(reason: str) -> PassageGrade:
    """A passage the judge could not grade."""
    return PassageGrade(reason=reason)


def read_grade(text: str) -> PassageGrade:
    """The grade in a reply: JSON (fenced, wrapped, broken, in prose), a bare number, or a labelled score.

    `score` is None where the reply says none, several, or one outside [0, 1]; `reason` then says why.
    """
    said = _SPECIAL_TOKENS.sub("", without_reasoning(text[:_MAX_CHARS])).strip()
    if not said:
        return ungraded("the judge's reply is empty or was cut off while it reasoned")
    grades = [_graded(found) for found in _objects(said)]
    if not grades:
        return _from_prose(said)
    if len({(grade.score, grade.relevance) for grade in grades}) > 1:
        return ungraded("the judge's reply holds several grades")
    return grades[0]


def read_grades(text: str, count: int) -> list[PassageGrade]:
    """The grades of `count` passages, numbered from 1, in the reply to a batch, in the order of the numbers.

    A number that is missing, or named twice, leaves its passage ungraded; so does one that names no passage, since
    nobody knows which one was meant.
    """
    said = _SPECIAL_TOKENS.sub("", without_reasoning(text[: _MAX_CHARS * count])).strip()
    entries = _entries(_strict(said)) or [each for leaf in _LEAF.findall(said) if (each := _mended(leaf)) is not None]
    by_number: dict[str, list[Mapping[str, Any]]] = {}
    for entry in entries:
        if isinstance(entry, Mapping) and any(key in entry for key in _SCORE_KEYS):
            by_number.setdefault(str(entry.get(_ID_KEY)).strip(), []).append(entry)
    numbers = [str(number) for number in range(1, count + 1)]
    if unknown := [number for number in by_number if number not in numbers]:
        return [ungraded(f"the judge's reply grades passages that it was not shown: {unknown[0][:20]!r}")] * count
    return [_the_one(by_number.get(number, [])) for number in numbers]


def _entries(found: Any) -> Sequence[Any]:
    """The list in a whole reply: itself, or the one value of an envelope."""
    if isinstance(found, Mapping):
        lists = [value for value in found.values() if isinstance(value, list)]
        return lists[0] if len(lists) == 1 else []
    return found if isinstance(found, list) else []


def _the_one(entries: Sequence[Mapping[str, Any]]) -> PassageGrade:
    if len(entries) != 1:
        return ungraded("the judge's reply holds several grades" if entries else "the judge's reply holds no grade")
    return _graded(entries[0])


# --- finding the object ----------------------------------------------------------------------------------------------


def _objects(said: str) -> list[Mapping[str, Any]]:
    """Every mapping in the reply that names a score, envelopes opened."""
    whole = _strict(said)
    if whole is not None:
        found = _with_score(whole)
        return [found] if found is not None else []
    candidates = (_mended(piece) for piece in _pieces(said))
    return [found for each in candidates if (found := _with_score(each)) is not None]


def _strict(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_contradiction)
    except (ValueError, RecursionError):
        return None


def _without_contradiction(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping; a key given twice with two values holds both, which no score can be."""
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        mapping[key] = [mapping[key], value] if key in mapping and mapping[key] != value else value
    return mapping


def _mended(piece: str) -> Any:
    if (found := _strict(piece)) is not None:
        return found
    return mended(_DECIMAL_COMMA.sub(r"\1.\2", piece))


def _with_score(found: Any, depth: int = 0) -> Mapping[str, Any] | None:
    """The mapping with a score in `found`: itself, the only entry of a list, or the content of an envelope."""
    if depth > _MAX_DEPTH:
        return None
    if isinstance(found, str):
        return _with_score(_strict(found), depth + 1) if found.lstrip().startswith(("{", "[")) else None
    if isinstance(found, Sequence):
        return _with_score(found[0], depth + 1) if len(found) == 1 else None
    if not isinstance(found, Mapping):
        return None
    if any(key in found for key in _SCORE_KEYS):
        # A schema that came back says what type a score has, not what it is.
        return None if any(isinstance(found.get(key), Mapping) for key in _SCORE_KEYS) else found
    inner = [found[key] for key in _ENVELOPES if key in found] or (list(found.values()) if len(found) == 1 else [])
    return _with_score(inner[0], depth + 1) if len(inner) == 1 else None


def _pieces(said: str) -> Iterator[str]:
    """The stretches of a reply that may be an object: each balanced {…}, or the rest where one never closes."""
    start = said.find("{")
    while start >= 0:
        end = _closing(said, start)
        if end is None:
            yield _open_ended(said[start:])
            return
        yield said[start:end]
        start = said.find("{", end)


def _closing(said: str, start: int) -> int | None:
    """Where the {…} that opens at `start` ends; braces in strings don't count."""
    depth, quoted, position = 0, False, start
    while position < len(said):
        character = said[position]
        if quoted:
            if character == "\\":
                position += 1
            elif character == '"':
                quoted = False
        elif character == '"':
            quoted = True
        elif character in "{}":
            depth += 1 if character == "{" else -1
            if depth == 0:
                return position + 1
        position += 1
    return None


def _open_ended(rest: str) -> str:
    """An object that never closes: up to its last brace if only its quotes are off, else its whole fields."""
    if rest.rstrip("` \n").endswith("}"):
        return rest[: rest.rindex("}") + 1]
    # Cut off by the token limit: a field without a comma behind it may be half a number.
    complete, quoted, position = 0, False, 0
    while position < len(rest):
        character = rest[position]
        if character == "\\" and quoted:
            position += 1
        elif character == '"':
            quoted = not quoted
        elif character == "," and not quoted:
            complete = position
        position += 1
    return rest[:complete] + "}"


# --- reading it ------------------------------------------------------------------------------------------------------


def _graded(found: Mapping[str, Any]) -> PassageGrade:
    key = next(key for key in _SCORE_KEYS if key in found)
    score = read_score(found[key])
    if score is None:
        return ungraded(f"the judge's score is no number from 0 to 1: {str(found[key])[:40]!r}")
    relevance = _relevance(found.get("verdict"))
    if (relevance == "relevant" and score < _CONTRADICTS_BELOW) or (
        relevance == "irrelevant" and score > _CONTRADICTS_ABOVE
    ):
        return ungraded(f"the judge contradicts itself: {relevance}, yet a score of {score:g}")
    reason = found.get("reason")
    shown = " ".join(reason.split())[:_REASON_CHARS] if isinstance(reason, str) else ""
    shown = shown.encode("utf-8", "replace").decode()  # half an emoji can't be sent on
    return PassageGrade(score=score, relevance=relevance, reason=shown)


def _relevance(value: Any) -> Relevance | None:
    return _RELEVANCE.get(" ".join(re.split(r"[\s_-]+", value.strip().lower()))) if isinstance(value, str) else None


def read_score(value: Any) -> float | None:
    """A number, or text like "0.8", "0,8", "8/10" or "85 %", as a score in [0, 1]; None for anything else."""
    number = _number(value.strip()) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    return float(number) if 0 <= number <= 1 else None  # NaN is neither


def _number(text: str) -> float | None:
    if match := _FRACTION.fullmatch(text):
        part, whole = (float(number.replace(",", ".")) for number in match.groups())
        return part / whole if 0 < whole < math.inf else None
    if match := _PERCENT.fullmatch(text):
        return float(match[1].replace(",", ".")) / 100
    if not _NUMBER.fullmatch(text):
        return None
    try:
        return float(text.replace(",", "."))
    except ValueError:  # "e7", "." and the like
        return None


def _from_prose(said: str) -> PassageGrade:
    """A reply without an object: the number alone, or one that a label and its form name a score from 0 to 1."""
    alone = read_score(said.strip("`*\"' \n"))
    if alone is not None:
        return PassageGrade(score=alone)
    # What looks like an object but couldn't be read as one is not prose.
    labelled = set() if "{" in said else {read_score(number) for number in _LABELLED.findall(said)}
    if len(labelled) == 1 and (score := labelled.pop()) is not None:
        return PassageGrade(score=score)
    return ungraded("the judge's reply holds no grade")
