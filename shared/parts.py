"""The single questions in a question of several, and what a later one leaves out. Pure; English, French and Russian."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from shared.language import fold, terms

CODE: Final = re.compile(r"(?=\S*\d)(?=\S*[^\W\d_])[\w-]{4,}")
"""An identifier: letters and digits in one word, "NK-T2-310"."""

_ASKING: Final = (
    r"(?:(?:at|by|for|from|in|on|to|until|within|à|a|de|en|par|pour|dans|avec|во?|до|за|из|ко?|на|от|по|при|со?|у)\s+)?"
    r"(?:who|whom|what|when|where|which|why|how|is|are|do|does|did|can|may|must|will|qui|que|quel\w*|quand|o[uù]|comment"
    r"|combien|pourquoi|est-ce|peut-on|faut-il|кто|что|чем|когда|где|куда|какой|каков\w*|как\w{2}|каким\w?|как"
    r"|сколько|скольки|почему|можно|нужно)\b"
)
_COUNTING: Final = (
    r"(?:how (?:much|many|long|often|far|old|heavy|big)|combien|quel(?:le)?s?|сколько|как(?:ой|ая|ое|ие)|каков\w*)\b"
)
_AND: Final = r"(?:and also|and|et aussi|et|ainsi que|а также|и также|и)"
_BREAK: Final = re.compile(rf"([?;]+\s+|,?\s+{_AND}\s+(?={_ASKING})|,\s+(?={_COUNTING}))", re.IGNORECASE)
_ASKS: Final = re.compile(rf"\b{_ASKING}", re.IGNORECASE)
_CLAUSE: Final = re.compile(r"\s*(?:if|when|as|since|si|quand|lorsqu\w*|если|когда|раз)\b", re.IGNORECASE)
"""How a piece begins that is no question but the condition of the next one."""
_BACK: Final = re.compile(
    r"\b(?:it|its|they|them|their|this|these|one|ones|same|he|she|his|her|il|elle|ils|elles|son|sa|ses|leurs?|lui|memes?"
    r"|cel(?:ui|le|les)|ceux|cela|он[аои]?|его|ее|их|н[её]го|нее|них|ней|нем|ним|ему|ей|эт(?:от|а|о|и|ого|ой|их)"
    r"|т(?:от|а|о|е|ого|ой|у) же|так(?:ой|ая|ое|ие) же)\b"
)
"""Words that stand for what was named before."""
_NAME: Final = re.compile(
    r"(?<=[\w,»”\"'’(«“] )[«“\"(]?[A-ZÀ-ÞА-ЯЁ][\w-]+(?:\s+(?:[A-ZÀ-ÞА-ЯЁ][\w-]*|\d+(?![\w:.,]))\b)*"
)
"""Capitalised words inside a sentence, with the number that belongs to them: "Lärche 2"."""
_WORD: Final = re.compile(r"\w[\w-]*")
_OWN_WORDS: Final = 2
"""Content words from which a part without a pronoun stands alone."""


def parts_of(question: str, language: str) -> list[str]:
    """The single questions in `question`, as they stand there; all of it where it is one."""
    first, *rest = _BREAK.split(question)
    pieces = [first]
    for mark, piece in zip(rest[::2], rest[1::2], strict=True):
        before = pieces[-1]
        is_lead = not _says_something(before, language) or (mark.strip() == "," and not _ASKS.search(before))
        if is_lead or _CLAUSE.match(before):
            pieces[-1] = f"{before}{mark}{piece}"
        else:
            pieces.append(piece)
    pieces = [piece.strip(" ,;") for piece in pieces if _says_something(piece, language)]
    return pieces if len(pieces) > 1 else [question]


def standing_alone(parts: Sequence[str], language: str) -> list[str]:
    """The parts, those that lean on the ones before them ("and what does the same cost?") with what they are about.

    That is the codes and names of the earlier parts, or the content words of the first where nothing has a name.
    """
    return [_with_topic(part, parts[:number], language) for number, part in enumerate(parts)]


def _says_something(piece: str, language: str) -> bool:
    return bool(terms(piece, language)) and len(_WORD.findall(piece)) > 1


def _with_topic(part: str, earlier: Sequence[str], language: str) -> str:
    own = set(terms(part, language))
    if not earlier or _names(part) or (len(own) >= _OWN_WORDS and not _BACK.search(fold(part))):
        return part
    topic = [name for before in earlier for name in _names(before)] or _WORD.findall(earlier[0])
    missing = [word for word in dict.fromkeys(topic) if not own.issuperset(terms(word, language))]
    return " ".join([part, *missing])


def _names(piece: str) -> list[str]:
    codes = CODE.findall(piece)
    return codes or [name.strip('«“"(') for name in _NAME.findall(piece)]
