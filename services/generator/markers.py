"""Citation markers in an answer: read leniently, written as `[1][2]`, numbered by first use. Pure.

Markers are `[1]`, `[1, 2]`, `[1-3]`, `[^1]`, `[source 1]`, `【1】` and `【1†title】`; `(1)` is none, nor
is anything in a code span or fenced block. A number that names no passage is removed, a year in brackets included.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shared.language import sentences

_WORDS: Final = r"(?:passages?|sources?|documents?|refs?|extraits?|фрагмент[ы]?|источник[и]?|отрыв(?:ок|ки))"
_NUMBERS: Final = r"\^?[0-9]{1,40}(?:\s*+[-–—,;]\s*+\^?[0-9]{1,40})*"
_BEFORE: Final = rf"\s*+(?:{_WORDS}\s*+[:#№]?\s*+)?"
_AFTER: Final = r"\s*+(?:†[^\]】\n]*)?"
_MARKER: Final = re.compile(
    rf"\[{_BEFORE}(?P<square>{_NUMBERS}){_AFTER}\](?:\(https?://[^)\s]*\))?"
    rf"|【{_BEFORE}(?P<lenticular>{_NUMBERS}){_AFTER}】",
    re.IGNORECASE,
)
_BLANKS_AND_MARKER: Final = re.compile(rf"(?P<blanks>(?<![ \t])[ \t]*+)(?P<marker>{_MARKER.pattern})", re.IGNORECASE)
_CODE: Final = re.compile(r"^ {0,3}(```|~~~).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)|(`+)(?!`)[^\n]*?(?<!`)\2(?!`)", re.M | re.S)
FENCED: Final = re.compile(r"^ {0,3}(```|~~~).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.M | re.S)
_HALF: Final = re.compile(
    r"(?<!\s)\s*+[\[【]\s*+[^\W\d_]{0,12}+\s*+[:#№]?[\^0-9,;\s–—-]*+(?:†[^\]】\n]*+)?\Z|(?<=\])\((?:h[^)\s]*)?\Z"
)
"""What may still become a marker, or the address behind one."""
_ROUNDS: Final = 8
_BRACKETS: Final = re.compile(r"[\[\]【】]")
_OPEN_CODE: Final = re.compile(r"`[^\n]*\Z")
_REPEATED: Final = re.compile(r"(\[[0-9]+\])(?:[ \t]*\1)+")
_LEADING: Final = re.compile(r"(?:\s*\[[0-9]+\])+[.,;:!?…]*")
_LAST_MARKER: Final = re.compile(r"\[[0-9]+\][\s.!?…»\"”*_)]*\Z")


@dataclass(frozen=True)
class Settled:
    """`text` with markers `[1]` to `[len(used)]`; `used[n - 1]` is the number the writer gave passage `[n]`."""

    text: str
    used: tuple[int, ...]


def settle(text: str, known: int) -> Settled:
    """`text` with plain markers of passages 1 to `known` only, renumbered by first use; once more changes nothing."""
    for _ in range(_ROUNDS):  # taking a marker out may join the text around it to another one
        previous, text = text, _without_end(text, _HALF)
        text = _outside_code(text, lambda prose: _plain(prose, known))
        if text == previous:
            break
    else:
        text = _outside_code(text, lambda prose: _BRACKETS.sub("", prose))
    numbers: dict[int, int] = {}

    def renumber(match: re.Match[str]) -> str:
        old = int(match["square"])
        return f"[{numbers.setdefault(old, len(numbers) + 1)}]"

    text = _outside_code(text, lambda prose: _MARKER.sub(renumber, prose))
    return Settled(text.strip(), tuple(numbers))


def settle_growing(text: str, known: int) -> str:
    """The beginning of `text` that is settled already, whatever is written next."""
    return _without_end(settle(_without_end(text, _OPEN_CODE), known).text, _HALF).rstrip()


def without_markers(text: str) -> str:
    """`text` without any marker outside code: for earlier turns, whose numbers mean nothing any more."""
    return settle(text, 0).text


def cited_sentences(text: str, language: str) -> dict[int, list[str]]:
    """For each marker of a settled text, the sentences that carry it, without markers."""
    found: dict[int, list[str]] = {}
    for sentence in whole_sentences(text, language):
        bare = without_markers(sentence)
        for number in markers_in(sentence):
            if bare not in found.setdefault(number, []):
                found[number].append(bare)
    return found


def markers_in(text: str) -> list[int]:
    """Numbers of the plain markers outside code, in order, with repetitions."""
    numbers: list[int] = []

    def note(prose: str) -> str:
        numbers.extend(int(match["square"]) for match in _MARKER.finditer(prose) if (match["square"] or "").isdigit())
        return prose

    _outside_code(text, note)
    return numbers


def whole_sentences(text: str, language: str) -> list[str]:
    """Sentences in order, word for word; markers after the full stop belong to the sentence before them."""
    pieces: list[str] = []
    at = 0
    for sentence in sentences(text, language):
        start = text.index(sentence, at)
        end = start + len(sentence)
        leading = _LEADING.match(sentence)
        if leading and pieces and "\n" not in text[at:start]:
            pieces[-1] += text[at : start + leading.end()]
            start += leading.end()
        at = end
        if rest := text[start:end].strip():
            pieces.append(rest)
    return pieces


def whole_beginning(text: str, language: str) -> str:
    """What is whole of a text cut at the token limit: a last sentence stays only if its marker had been written."""
    pieces = whole_sentences(text, language)
    if not pieces or _LAST_MARKER.search(pieces[-1]):
        return text.strip()
    return text[: text.rindex(pieces[-1].split("\n")[0])].strip()


def _plain(prose: str, known: int) -> str:
    def rewrite(match: re.Match[str]) -> str:
        numbers = [n for n in _numbers(match["square"] or match["lenticular"], known) if 1 <= n <= known]
        return match["blanks"] + "".join(f"[{n}]" for n in dict.fromkeys(numbers)) if numbers else ""

    return _REPEATED.sub(r"\1", _BLANKS_AND_MARKER.sub(rewrite, prose))


def _numbers(listed: str, known: int) -> list[int]:
    """Numbers of "1, 3-5"; a range is followed no further than `known`."""
    numbers: list[int] = []
    for part in re.split(r"[,;]", listed.replace("^", "")):
        ends = [int(number) for number in re.split(r"[-–—]", part)]
        numbers.extend(range(ends[0], min(ends[-1], known) + 1))
    return numbers


def _without_end(text: str, end: re.Pattern[str]) -> str:
    code_end = max((match.end() for match in _CODE.finditer(text)), default=0)
    return text[:code_end] + end.sub("", text[code_end:])


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    pieces: list[str] = []
    at = 0
    for code in _CODE.finditer(text):
        pieces += [change(text[at : code.start()]), code.group()]
        at = code.end()
    return "".join([*pieces, change(text[at:])])
