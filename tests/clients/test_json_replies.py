"""The one JSON object in a model's reply."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.clients.json_replies import object_in

GOOD = '{"queries": ["a"]}'
READ: list[tuple[str, Any]] = [
    (GOOD, {"queries": ["a"]}),
    (f"```json\n{GOOD}\n```", {"queries": ["a"]}),
    (f"Here: {GOOD}. Anything else?", {"queries": ["a"]}),
    (f"A {{draft}}, then {GOOD}", {"queries": ["a"]}),
    (f'{{"queries": ["draft"]}} {GOOD}', {"queries": ["a"]}),
    (f"[{GOOD}]", {"queries": ["a"]}),
    (f'{{"result": {GOOD}}}', {"queries": ["a"]}),
    (f"{{{GOOD}}}", {"queries": ["a"]}),
    (f"<think>hm {{}}</think>{GOOD}", {"queries": ["a"]}),
    ("{'queries': ['a',],}", {"queries": ["a"]}),
    ('{"queries": ["a", "b', {"queries": ["a", "b"]}),
    ('{"other": 1}', None),
    ('["queries"]', None),
    ("queries: a", None),
    ("42", None),
    ("null", None),
    ("", None),
    ("{", None),
]


@pytest.mark.parametrize(("text", "found"), READ)
def test_the_object_with_one_of_the_keys(text: str, found: Any) -> None:
    assert object_in(text, ("intent", "queries")) == found


@settings(deadline=None)
@given(st.text(max_size=200) | st.text(alphabet="{}[]\"':,a \\", max_size=200))
def test_any_text_is_an_object_or_none(text: str) -> None:
    found = object_in(text, ("a",))
    assert found is None or "a" in found


@pytest.mark.parametrize("piece", ["{", "[", "{ ", '{"a":', "[{", "{a", "{'", '{"a":[', 'x{"', "{a{b{c{d{e "])
def test_what_never_closes_takes_no_time(piece: str) -> None:
    """json-repair alone takes minutes for some of these, and all jobs of the worker would wait."""
    for count in (5, 30, 5_000):
        started = time.process_time()
        object_in(piece * count + "x" * 9_000, ("a",))
        assert time.process_time() - started < 5
