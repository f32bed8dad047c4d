"""The gate, the page and the tables."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from evals.comparing import compare
from evals.gate import InvalidGate, misses, read_gate
from evals.page import page_of
from evals.report import lines_of, lines_of_comparison
from evals.sheet import AskedFacts, DatasetFacts, Sheet, StageSheet

HOSTILE = "<script>alert('[red]$x_1$&')</script>"


@pytest.fixture
def sheet() -> Sheet:
    """A report with everything in it, and names that must not be taken for markup."""
    retrieval = StageSheet(
        figures={
            "all": {"n": 2, "nDCG@10": 0.75, "ms p95": 12.0},
            "lang.en": {"n": 1, "nDCG@10": 1.0},
            "lang.ru": {"n": 1, "nDCG@10": 0.5},
            f"kind.{HOSTILE}": {"n": 1, "nDCG@10": None},
            "kind.a.b": {"n": 1, "nDCG@10": 0.5},
            "narrowed.ru-en": {"n": 1, "document@5": 1.0, "section@5": 0.0},
        },
        per_query={"q1": {"nDCG@10": 1.0}, HOSTILE: {"nDCG@10": 0.5}},
        facts={"search_ms": [10.0, 12.0, 30.0], "degraded": {HOSTILE: 2}, "without_relevant": 1},
    )
    bins = [{"from": 0.0, "to": 0.1, "n": 3, "score": 0.05, "relevant": 0.0}]
    grading = StageSheet(figures={"all": {"n": 3, "AUC": None, "Brier": 0.2}}, facts={"reliability": bins})
    answer = StageSheet(
        figures={"all": {"n": 2, "contains": 0.5}, "cost": {"calls": 1.5, "s p50": 0.25}},
        per_query={HOSTILE: {"contains": 0.0}},
        facts={"seconds": [0.1, 0.4], "statuses": {"answerable": {"answered": 2}}, "usage": {"grader": {"calls": 3}}},
    )
    return Sheet(
        cairn="1",
        date="2025-01-01T00:00:00+00:00",
        command=f"cairn eval {HOSTILE}",
        dataset=DatasetFacts(
            name=HOSTILE,
            split="dev",
            fingerprint="f",
            corpus="c",
            documents=1,
            passages=1,
            questions=2,
            limit=2,
            left_out=(HOSTILE,),
        ),
        settings={"index": HOSTILE},
        settings_fingerprint="s",
        questions={
            "q1": AskedFacts(question="?", language="en"),
            HOSTILE: AskedFacts(question=HOSTILE, language="ru"),
        },
        stages={"retrieval": retrieval, "grading": grading, "answer": answer},
    )


def gate(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "gate.toml"
    path.write_text(text, "utf-8")
    return path


def test_bounds_that_are_kept(sheet: Sheet, tmp_path: Path) -> None:
    text = (
        '[retrieval.all]\n"nDCG@10" = 0.75\n"ms p95" = { max = 12 }\n[grading.all]\nBrier = { min = 0.1, max = 0.2 }\n'
    )
    assert misses(read_gate(gate(tmp_path, text)), sheet) == []


def test_every_miss_is_listed(sheet: Sheet, tmp_path: Path) -> None:
    text = (
        '[retrieval.all]\n"nDCG@10" = 0.9\n"ms p95" = { max = 10 }\n'
        '[retrieval.lang.ru]\n"nDCG@10" = 0.4\n[retrieval.kind."a.b"]\n"nDCG@10" = 0.6\n[grading.all]\nAUC = 0.5\n'
    )
    assert [miss.line() for miss in misses(read_gate(gate(tmp_path, text)), sheet)] == [
        "retrieval.all nDCG@10: 0.75, at least 0.9 wanted",
        "retrieval.all ms p95: 12, at most 10 wanted",
        "retrieval.kind.a.b nDCG@10: 0.5, at least 0.6 wanted",
        "grading.all AUC: nothing to compute it from, at least 0.5 wanted",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "[retrieval.lang.de]\nRR = 1\n",
            r"no group \[retrieval\.lang\.de\]; there are retrieval\.all, ",
        ),
        ("[retrieval.all]\nMAP = 1\n", r'no figure "MAP" in \[retrieval\.all\]; there are n, nDCG@10, ms p95'),
        ("[decision.all]\nbalanced = 1\n", r"decision is not measured; --stages names retrieval, grading, answer"),
        ('[retrieval.all]\nRR = "high"\n', r"retrieval\.all\.RR is 'high', not a number"),
        ("[retrieval.all]\nRR = true\n", r"retrieval\.all\.RR is True, not a number"),
        ("[retrieval.all]\nRR = {}\n", "not a number"),
        ("RR = 1\n", "stands outside of a group"),
        ("[retrieval.all\n", "not TOML"),
        ("# nothing\n", "there is no bound in it"),
    ],
)
def test_a_gate_that_says_nothing_of_use(sheet: Sheet, tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InvalidGate, match=complaint):
        misses(read_gate(gate(tmp_path, text)), sheet)


def test_a_gate_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidGate, match="can't be read"):
        read_gate(tmp_path / "none.toml")


class Page(HTMLParser):
    """Which elements a page has, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href")]


def test_the_page_stands_alone_and_escapes(sheet: Sheet) -> None:
    text = page_of(sheet)
    page = Page(text)
    assert "script" not in page.elements
    assert page.elements.count("svg") == 4  # bars, two distributions, reliability; bars of one group are left out
    assert all(link.startswith("#") for link in page.links)
    assert "&lt;script&gt;" in text
    ids = re.findall(r'id="(m[0-9a-f]{10,})"', text)
    assert len(ids) == len(set(ids))


def test_the_same_sheet_gives_the_same_page(sheet: Sheet) -> None:
    assert page_of(sheet) == page_of(sheet)


def printed(lines: object) -> str:
    console = Console(file=StringIO(), width=140)
    for line in lines:  # type: ignore[attr-defined]
        console.print(line)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_tables_on_the_terminal(sheet: Sheet) -> None:
    text = printed(lines_of(sheet))
    assert HOSTILE in text
    assert re.search(r"narrowed ru → en +1 +1\.000 +0\.000", text)
    assert re.search(r"all +2 +0\.750 +12", text)
    assert "answerable: 2 answered" in text


def test_a_comparison_on_the_terminal(sheet: Sheet) -> None:
    text = printed(lines_of_comparison(compare(sheet, sheet)))
    assert re.search(r"retrieval nDCG@10 +2 +0\.750 +0\.750 +\+0\.000 .* no significant difference", text)
