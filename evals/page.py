"""The report as one HTML page that needs nothing else: no script, no other file, nothing from the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from evals import plots
from evals.sheet import Sheet, StageSheet
from evals.words import TITLES, Groups, columns, group_name, remarks, tables, written

WORST: Final = 15
_MAIN_MEASURE: Final = {
    "retrieval": "nDCG@10",
    "grading": "AUC",
    "decision": "balanced",
    "answer": "contains",
}
_WORST_BY: Final = {"retrieval": "nDCG@10", "answer": "contains"}
_STYLE: Final = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; margin: .8rem 0; font-size: .87rem; display: block; overflow-x: auto; }
th, td { padding: .22rem .7rem; text-align: right; border-bottom: 1px solid #e5e5e5; }
th:first-child, td:first-child, td.words { text-align: left; }
tr:first-child th { border-bottom: 2px solid #bbb; font-weight: 600; }
tr.all td { font-weight: 600; }
.dim { color: #666; font-size: .87rem; } svg { max-width: 100%; height: auto; }
details { margin: .8rem 0; } summary { cursor: pointer; color: #2b6cb0; }
"""


def page_of(sheet: Sheet) -> str:
    """The whole page. Everything that comes from data is escaped."""
    title = f"Evaluation of {sheet.dataset.name}"
    body = "\n".join(_body(sheet, title))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _body(sheet: Sheet, title: str) -> Iterator[str]:
    data = sheet.dataset
    yield f"<h1>{escape(title)}</h1>"
    yield (
        f'<p class="dim">{escape(data.split)}, {data.questions} questions, {data.passages} passages of '
        f"{data.documents} documents; Cairn {escape(sheet.cairn)}, {escape(sheet.date)}<br>"
        f"<code>{escape(sheet.command)}</code></p>"
    )
    for problem in data.left_out:
        yield f"<p>Left out: {escape(problem)}</p>"
    for stage, measured in sheet.stages.items():
        yield f"<h2>{escape(TITLES.get(stage, stage))}</h2>"
        yield from (_table(groups) for groups in tables(measured.figures))
        if found := remarks(measured.facts):
            yield f'<p class="dim">{"<br>".join(map(escape, found))}</p>'
        yield from _plots(stage, measured)
        yield from _worst(stage, measured, sheet)
    yield "<h2>Settings</h2>"
    facts = {"data": data.fingerprint, "corpus": data.corpus, "settings": sheet.settings_fingerprint}
    yield _facts({**{f"{name} fingerprint": value for name, value in facts.items()}, **sheet.settings})


def _table(groups: Groups) -> str:
    names = columns(groups)
    head = "".join(f"<th>{escape(name)}</th>" for name in ("", *names))
    rows = []
    for group, figures in groups.items():
        cells = "".join(f"<td>{written(name, figures[name]) if name in figures else ''}</td>" for name in names)
        mark = ' class="all"' if group == "all" else ""
        rows.append(f"<tr{mark}><td>{escape(group_name(group))}</td>{cells}</tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _plots(stage: str, measured: StageSheet) -> Iterator[str]:
    measure = _MAIN_MEASURE.get(stage, "")
    shown = {
        group_name(group): figures[measure]
        for group, figures in measured.figures.items()
        if figures.get(measure) is not None
    }
    if len(shown) > 1:
        yield plots.bars(shown, label=measure)
    if bins := measured.facts.get("reliability"):
        yield plots.reliability(bins)
    if times := measured.facts.get("search_ms"):
        yield plots.distribution(times, label="ms for one search, its question's embedding included")
    if times := measured.facts.get("seconds"):
        yield plots.distribution(times, label="s of work for one question, all stages together")


def _worst(stage: str, measured: StageSheet, sheet: Sheet) -> Iterator[str]:
    measure = _WORST_BY.get(stage)
    values = {query: each[measure] for query, each in measured.per_query.items() if measure in each} if measure else {}
    worst = sorted((query for query in values if values[query] < 1), key=lambda query: (values[query], query))[:WORST]
    if not worst:
        return
    rows = "".join(
        f'<tr><td>{escape(query)}</td><td>{values[query]:.3f}</td><td class="words">'
        f"{escape(sheet.questions[query].question)}</td></tr>"
        for query in worst
    )
    yield (
        f"<details><summary>The {len(worst)} questions with the lowest {escape(measure or '')}</summary>"
        f"<table><tr><th>question</th><th>{escape(measure or '')}</th><th></th></tr>{rows}</table></details>"
    )


def _facts(facts: Mapping[str, Any]) -> str:
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="words">{escape(str(value))}</td></tr>' for name, value in facts.items()
    )
    return f"<table>{rows}</table>"
