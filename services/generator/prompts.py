"""What the answering and checking model is told. Text only: no client, and nothing of who asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import Any, Final

from services.generator.markers import without_markers
from shared.citations import shortened
from shared.contracts import Evidence, Turn

PROMPT_VERSION: Final = "answer-2"
CHECK_VERSION: Final = "check-1"
"""The files of these names, beside this one."""
NO_ANSWER: Final = "NO_ANSWER"
LANGUAGES: Final = {
    "en": "English", "fr": "French", "ru": "Russian", "de": "German", "es": "Spanish", "it": "Italian",
}  # fmt: skip
_CHECKED: Final[dict[str, Any]] = {
    "grounded": {"type": "number"}, "answers": {"type": "number"},
    "unsupported": {"type": "array", "items": {"type": "integer"}}, "missing": {"type": "string"},
}  # fmt: skip
CHECK_SCHEMA: Final[dict[str, Any]] = {
    "type": "object", "properties": _CHECKED, "required": list(_CHECKED), "additionalProperties": False,
}  # fmt: skip

_ANSWER, _CHECK = (
    Template((resources.files(__package__) / f"{version}.md").read_text("utf-8")).substitute
    for version in (PROMPT_VERSION, CHECK_VERSION)
)


@dataclass(frozen=True)
class Shown:
    """One passage as the model sees it: number n is its place in the list, `text` what it may read of it."""

    evidence: Evidence
    text: str


def fit(evidence: Sequence[Evidence], budget_tokens: int, count: Callable[[str], int]) -> list[Shown]:
    """The first passages that fit into the budget together, as `count` counts; one is cut if it alone does not fit.

    The best stands first and the second best last: what is in the middle of a long prompt is read least.
    """
    shown: list[Shown] = []
    left = budget_tokens
    for each in evidence:
        text = _joined(each)
        cost = count(_headed(each, text))
        if cost > left and not shown:
            text = shortened(text, max(1, int(len(text) * left / cost)))
            cost = left
        if cost <= left:
            shown.append(Shown(each, text))
            left -= cost
    return shown[::2] + shown[1::2][::-1]


def recent(history: Sequence[Turn], *, turns: int, chars: int) -> list[Turn]:
    """The latest turns within both bounds, oldest first; numbers that earlier answers cited are taken out."""
    kept: list[Turn] = []
    for turn in reversed(history[max(0, len(history) - turns) :] if turns else ()):
        content = without_markers(turn.content) if turn.role == "assistant" else turn.content
        if len(content) > chars:
            break
        chars -= len(content)
        kept.append(Turn(role=turn.role, content=content))
    return kept[::-1]


def system_prompt(language: str, nonce: str) -> str:
    """The rules. `language` is an ISO 639-1 code; `nonce` is what nobody who wrote a passage could know."""
    named = LANGUAGES.get(language, f"the language with the ISO 639-1 code {language}")
    return _ANSWER(language=named, fence=nonce)


def user_prompt(question: str, shown: Sequence[Shown], nonce: str) -> str:
    """Fenced passages, then the question. A passage that contains the fence loses it."""
    passages = "\n\n".join(
        _fenced(f"passage {number}", _headed(each.evidence, each.text), nonce)
        for number, each in enumerate(shown, start=1)
    )
    return f"Passages:\n\n{passages}\n\nQuestion: {question.replace(nonce, '')}"


def checking(question: str, cited: Sequence[Shown], claims: Sequence[str], nonce: str) -> list[dict[str, str]]:
    """The messages that ask whether these sentences of an answer hold; `cited[n - 1]` is what they cite as n."""
    answer = "\n".join(f"S{number}: {' '.join(claim.split())}" for number, claim in enumerate(claims, start=1))
    return [
        {"role": "system", "content": _CHECK(fence=nonce)},
        {"role": "user", "content": f"{user_prompt(question, cited, nonce)}\n\n{_fenced('answer', answer, nonce)}"},
    ]


def correction(finding: str) -> str:
    """What the model is told about a reply that can't be used."""
    return f"Your reply can't be used: {finding}. Write it again by the rules, or reply with {NO_ANSWER}."


def _fenced(name: str, text: str, nonce: str) -> str:
    return f"<<{nonce} {name}\n{text.replace(nonce, '')}\n{nonce}>>"


def _headed(evidence: Evidence, text: str) -> str:
    passage = evidence.passage
    heading = " › ".join(" ".join(part.split()) for part in (passage.title, passage.section) if part.strip())
    return f"{heading}\n{text}" if heading else text


def _joined(evidence: Evidence) -> str:
    """The strips in their order: neighbours as they stand in the passage, else with a sign of what is left out."""
    text, joined, end = evidence.passage.text, "", 0
    for strip in evidence.strips:
        start = text.find(strip, end)
        between = text[end:start] if start >= 0 else "…"
        joined += (between if not between.strip() else "\n…\n") * bool(joined) + strip
        end = max(end, start + len(strip))
    return joined or text
