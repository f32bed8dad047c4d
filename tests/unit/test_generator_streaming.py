"""What is shown of a growing reply: settled text that stays as it is."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.generator.markers import markers_in
from services.generator.streaming import Provisional


def shown(reply: str, known: int = 3, *, step: int = 1) -> list[str]:
    """What is shown after each piece of `step` characters."""
    provisional = Provisional(known)
    return [provisional.hear(reply[: at + step]) for at in range(0, len(reply), step)]


@pytest.mark.parametrize(
    ("reply", "last"),
    [
        ("Tents: 45 days [2]. Boots: 14 [1, 3].", "Tents: 45 days [1]. Boots: 14 [2][3]."),
        ("Tents: 45 days [9]. Boots: 14 [3].", "Tents: 45 days. Boots: 14 [1]."),
        ("Tents: 45 days 【2†Returns】.", "Tents: 45 days [1]."),
        ("Tents: 45 days [source 2].", "Tents: 45 days [1]."),
        ("Tents: 45 days [1](https://example.org/x). Boots [2].", "Tents: 45 days [1]. Boots [2]."),
        ("Tents: 45 days [9](https://example.org/x). Boots [2].", "Tents: 45 days. Boots [1]."),
        ("From [0, 1) on, tents [1].", "From [0, 1) on, tents [1]."),
        ("Tents [see the leaflet] 45 [1].", "Tents [see the leaflet] 45 [1]."),
        ("Call `row[2]` for tents [3].", "Call `row[2]` for tents [1]."),
        ("```\nrow[7]\n```\nTents [2].", "```\nrow[7]\n```\nTents [1]."),
        ("Tents [1] [1] now.", "Tents [1] now."),
        ("Tents\u200b 45 [\u200b1].", "Tents 45 [1]."),
        ("NO_ANSWER: the price of kayaks", ""),
        ("NO ANSWER", ""),
        ("**NO_ANSWER**", ""),
        ("Tents: 45 days [1]. For kayaks NO_ANSWER.", "Tents: 45 days [1]. For kayaks"),
        ("NORWAY pays more [1].", "NORWAY pays more [1]."),
        ('{"answer": "Tents [1]."}', ""),
        ('```json\n{"answer": "Tents [1]."}\n```', ""),
        ("Tents [1", "Tents"),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 100])
def test_it_grows_to_what_is_settled(reply: str, last: str, step: int) -> None:
    seen = shown(reply, step=step)
    assert seen[-1] == last
    assert all(later.startswith(earlier) for earlier, later in pairwise(seen))


PIECES = st.lists(
    st.sampled_from(
        [
            *("Tents 45", " [1]", "[2, 9]", "[1-4]", "【3】", "[^2]", "[", "]", "`", "```", "\n```\n", "(http://x)"),
            *("(h", " ", ". ", "\n", "7", "†", "я", "NO", "_ANSWER", "\u200b", "{", "source ", "\ud800"),
        ]
    ),
    max_size=24,
).map("".join)


@settings(deadline=None)
@given(reply=PIECES, known=st.integers(0, 4), step=st.integers(1, 5))
def test_nothing_shown_is_taken_back_and_no_marker_is_half_or_unknown(reply: str, known: int, step: int) -> None:
    earlier = ""
    for text in shown(reply, known, step=step):
        assert text.startswith(earlier)
        assert set(markers_in(text)) <= set(range(1, known + 1))
        assert "```" in text or not re.search(r"[\[【]\s*[0-9,;\s]*\Z", text.rpartition("`")[2])
        assert "NO_ANSWER" not in text
        text.encode()
        earlier = text


def test_a_reply_that_begins_anew_is_shown_anew() -> None:
    provisional = Provisional(2)
    assert provisional.hear("Tents: 45 days [2].") == "Tents: 45 days [1]."
    assert provisional.hear("Boots") == "Boots"
    assert provisional.hear("Boots: 14 [1]") == "Boots: 14 [1]"
