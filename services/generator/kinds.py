"""What kind of answer a question asks for, and whether a text looks like one: by words, in three languages. Pure."""

from __future__ import annotations

import re
from typing import Final

_ASKS_MONEY: Final = re.compile(
    r"(?i)\b(?:costs?|prices?|how much|fees?|charges?|co[uû]t\w*|prix|tarifs?|стоит|стоят|стоимость|цен\w+)\b"
)
_MONEY: Final = re.compile(r"(?i)[€$£₽₸]|\b(?:euros?|EUR|USD|евро|руб\w*)\b")
_ASKS_TIME: Final = re.compile(
    r"(?i)\b(?:what time|opens?|opening|closes?|closing|quelle heure|ferme\w*|ouv[er]\w+|во сколько|до скольки)\b"
)
_TIME: Final = re.compile(r"(?i)\b\d{1,2}(?::\d\d| ?h\b| ?[ap]\.?m\b)")
_DURATION: Final = re.compile(
    r"(?i)\d+[ -](?:\w+ )?(?:minutes?|hours?|days?|weeks?|months?|years?|heures?|jours?|mois|ans?|час|дн|мес|год|лет)"
)
_ASKS_NUMBER: Final = re.compile(
    r"(?i)\b(?:how (?:many|long|old|far|often)|when|which \w+ (?:size|length)|up to|maximum|combien|quand|températur\w*"
    r"|сколько|когда|какой температур\w*|как долго|срок)\b"
)
_ASKS_WEIGHT: Final = re.compile(r"(?i)\b(?:heavy|weighs?|weight|poids|p[eè]se(?:nt)?|вес|весит|весят|тяжел\w*)\b")
_ASKS_HEAT: Final = re.compile(r"(?i)\b(?:temp[eé]rature\w*|how (?:hot|warm|cold)|температур\w*)\b")
_ASKS_WHETHER: Final = re.compile(
    r"(?i)^(?:can|may|must|should|is|are|was|were|do|does|did|has|have|will)\b|^(?:можно|нужно)\b|\bли\b|\best-ce qu"
    r"|\b[^\W\d_]+(?:[- ]t)?-(?:on|ils?|elles?|je|vous)\b"
)
_KINDS: Final = (
    (_ASKS_MONEY, _MONEY, 0.4),
    (_ASKS_TIME, _TIME, 0.4),
    (re.compile(r"(?i)\b(?:how long|combien de temps|как долго|срок)\b"), _DURATION, 0.4),
    (_ASKS_WEIGHT, re.compile(r"(?i)\d\s?(?:k?g|кг|г|grams?|kilo\w*)\b"), 0.4),
    (_ASKS_HEAT, re.compile(r"°|\bdegr|\bградус"), 0.4),
    (_ASKS_WHETHER, re.compile(r"(?i)^(?:yes|no|oui|non|да|нет)\b"), 0.6),
)
"""What a question asks for, how an answer of that kind looks, and what it is worth."""
_NUMBER, _A_NUMBER = re.compile(r"\d"), 0.15
"""Any number, where nothing more special is asked for."""
_PRICED: Final = 0.2
"""For a table row that is said to be a price, where one is asked for: amounts stand in other columns, too."""


def kind_bonus(question: str, text: str, head: str) -> float:
    """What it is worth that `text` looks like the answer asked for; `head` is its table's head row, if it is a row."""
    asked = [(looks, value) for asks, looks, value in _KINDS if asks.search(question)]
    if not asked and _ASKS_NUMBER.search(question):
        asked = [(_NUMBER, _A_NUMBER)]
    worth = sum(value for looks, value in asked if looks.search(text))
    priced = head and _ASKS_MONEY.search(question) and _ASKS_MONEY.search(f"{head} {text}")
    return worth + (_PRICED if priced else 0.0)


def asked_and_met(question: str, text: str) -> str:
    """The words of the question that ask for a kind of answer which `text` looks like: it need not repeat them."""
    met = [asks for asks, looks, _ in _KINDS if looks.search(text)]
    return " ".join(found.group() for asks in met for found in asks.finditer(question))
