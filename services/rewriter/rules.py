"""What a question is after, by its words alone: English, French and Russian. Pure."""

from __future__ import annotations

import re
from typing import Final

from shared.contracts import Question, Route
from shared.language import detect_language, fold, terms
from shared.parts import parts_of

_COMPARATIVE = re.compile(
    r"\b(compar\w*|versus|vs|differ\w*|better|cheaper|rather than|which of|"
    r"plutot|meilleure?s?|moins chere?|lequel|laquelle|lesquels|par rapport|"
    r"сравн\w*|отлич\w*|разниц\w*|лучше|дешевле|дороже|чем)\b"
)
_PROCEDURAL = re.compile(
    r"(\bhow (do|can|should|to|does one)\b|\bsteps?\b|\bguide\b|\binstructions?\b|"
    r"\bcomment (faire|puis|peut|dois|doit|on|je)\b|\betapes?\b|\bproced\w*|"
    r"\bкак (мне |правильно |можно |нужно |надо )*\w+(ть|ться|ти|чь)\b|\bпошагов\w*|\bинструкци\w*|\bпорядок\b)"
)
_TECHNICAL = re.compile(
    r"(\b(error|exception|traceback|stack|config\w*|install\w*|api|http|https|cli|version|package|"
    r"erreur|installer|configurer|paquet|ошибк\w*|установ\w*|настро\w*|верси\w*|пакет\w*)\b|[`{}<>]|--\w|\w+\(\)|\w+_\w+)"
)
_POLITE = re.compile(
    r"^(?:(?:hi|hello|hey|please|bonjour|salut|s'il (?:vous|te) pla[iî]t|здравствуйте|привет|подскажите|"
    r"скажите)\b[\s,!.]*(?:пожалуйста\b[\s,!.]*)?)+",
    re.IGNORECASE,
)
_GREETINGS: Final = (
    r"hi|hello|hey|greetings|good (?:morning|afternoon|evening|day|night)|how are you(?: doing)?(?: today)?|all|there"
    r"|everyone|(?:many |ok |great |perfect )?(?:thanks|thank you)(?: (?:a lot|very much|so much))?(?: for your help)?"
    r"|thx|cheers|bye|goodbye|see you(?: later| soon)?"
    r"|bonjour|bonsoir|salut|coucou|ca va(?: bien)?|comment (?:ca va|allez vous|vas tu)|au revoir|a bientot|a tous"
    r"|(?:ok |super |parfait )?merci(?: (?:beaucoup|bien|infiniment|d avance|a vous))?(?: pour votre aide)?"
    r"|bonne (?:journee|soiree|nuit)"
    r"|привет|здравствуй(?:те)?|добр(?:ый|ое|ой) (?:день|утро|вечер|ночи)|доброго (?:дня|вечера)|как (?:у вас )?дела"
    r"|(?:большое |огромное )?спасибо(?: (?:большое|огромное|вам|за помощь))*|благодарю(?: вас)?|всем"
    r"|пока|до (?:свидания|встречи)|всего доброго"
)
_SMALL_TALK: Final = re.compile(rf"(?:(?:{_GREETINGS})(?: |$))+")
_SMALL_TALK_CHARS: Final = 80
_WORD: Final = re.compile(r"[^\W_]+")
_OWN_WORDS: Final = 3
"""Content words from which a follow-up is searched by itself."""


def language_of(asked: Question) -> str:
    """The language to answer in: the one asked for, else the question's own, or that of the turn before it."""
    before = asked.history[-1].content if asked.history else ""
    return asked.language or detect_language(asked.question, default=detect_language(before))


def route_of(question: str) -> Route:
    """The kind of question. Comparisons first: they need passages about several things."""
    folded = fold(question)
    if _COMPARATIVE.search(folded):
        return "comparative"
    if _TECHNICAL.search(folded):
        return "technical"
    if _PROCEDURAL.search(folded):
        return "procedural"
    return "factual"


def is_small_talk(question: str) -> bool:
    """Whether it is nothing but greetings and thanks."""
    words = " ".join(_WORD.findall(fold(question)))
    return len(words) <= _SMALL_TALK_CHARS and _SMALL_TALK.fullmatch(words) is not None


def without_greeting(question: str) -> str:
    """The question without the politeness it begins with; all of it where there is nothing else."""
    return _POLITE.sub("", question).strip() or question


def parts(question: str) -> list[str]:
    """The single questions in a question of several; empty for a single one."""
    found = parts_of(question, detect_language(question))
    return found if len(found) > 1 else []


def with_context(question: str, asked: Question, language: str) -> str:
    """A follow-up of few words of its own together with the user's question before it."""
    earlier = [turn.content for turn in asked.history if turn.role == "user"]
    return f"{earlier[-1]} {question}" if earlier and len(terms(question, language)) < _OWN_WORDS else question
