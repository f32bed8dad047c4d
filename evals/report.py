"""Reports on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from evals.comparing import Comparison
from evals.sheet import Sheet, StageSheet
from evals.words import TITLES, columns, group_name, remarks, tables, written


def lines_of(sheet: Sheet) -> Iterator[RenderableType]:
    """A sheet as rich shows it: what was measured, then a table and remarks for each stage."""
    data = sheet.dataset
    limited = f" (of more: --limit {data.limit})" if data.limit is not None else ""
    yield (
        f"[bold]{escape(data.name)}[/bold] {escape(data.split)}: {data.questions} questions{limited}, "
        f"{data.passages} passages of {data.documents} documents; settings {sheet.settings_fingerprint}, "
        f"index {escape(str(sheet.settings.get('index')))}, judge {escape(str(sheet.settings.get('judge')))}"
    )
    for problem in data.left_out:
        yield f"[yellow]left out: {escape(problem)}[/yellow]"
    for stage, measured in sheet.stages.items():
        yield from _stage(stage, measured)


def _stage(stage: str, measured: StageSheet) -> Iterator[RenderableType]:
    title = TITLES.get(stage, stage)
    for groups in tables(measured.figures):
        table = Table(title=title and f"[bold]{escape(title)}[/bold]", title_justify="left", box=None, pad_edge=False)
        table.add_column(stage, no_wrap=True)
        names = columns(groups)
        for name in names:
            table.add_column(escape(name), justify="right")
        for group, figures in groups.items():
            table.add_row(
                escape(group_name(group)), *(written(name, figures[name]) if name in figures else "" for name in names)
            )
        yield table
        title = ""
    for remark in remarks(measured.facts):
        yield f"  [dim]{escape(remark)}[/dim]"


def lines_of_comparison(comparison: Comparison) -> Iterator[RenderableType]:
    """A comparison as rich shows it, with the verdict on each measure in words."""
    for warning in comparison.warnings:
        yield f"[yellow]{escape(warning)}[/yellow]"
    for name, (before, after) in comparison.settings.items():
        yield f"setting {escape(name)}: {escape(str(before))} → {escape(str(after))}"
    table = Table(box=None, pad_edge=False)
    for name in ("measure", "n", "before", "after", "difference", "95 % interval", "p (Holm)", ""):
        table.add_column(name, justify="left" if name in ("measure", "") else "right", no_wrap=True)
    for each in comparison.differences:
        colour = {"significantly better": "green", "significantly worse": "red"}.get(each.verdict, "dim")
        table.add_row(
            escape(f"{each.stage} {each.measure}"),
            str(each.n),
            f"{each.before:.3f}",
            f"{each.after:.3f}",
            f"{each.mean:+.3f}",
            f"{each.low:+.3f} … {each.high:+.3f}",
            f"{each.p:.3f}",
            f"[{colour}]{each.verdict}[/{colour}]",
        )
    yield table
