"""cairn eval: how good search, judge and answers are on a set of questions; reads options and prints."""

from __future__ import annotations

import asyncio
import importlib.util
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from shared.cli.console import Exit, err, fail, out, print_json
from shared.errors import CairnError
from shared.runtime.delivery import explain
from shared.runtime.logs import set_up_logs
from shared.settings import HomeSettings, ObserveSettings

if TYPE_CHECKING:
    from evals.indexing import Progress as Told
    from evals.running import Stage
    from evals.sheet import Sheet

EXTRA = ("ir_measures", "scipy", "matplotlib")
"""What the extra `eval` installs."""


def evaluate(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="corpus.jsonl[.gz] or files/, with queries.jsonl, qrels.tsv …")
    ] = None,
    *,
    split: Annotated[str, typer.Option(help="questions are in DIR/SPLIT, or in DIR itself")] = "dev",
    stages: Annotated[
        str, typer.Option(help="what to measure, with commas between: retrieval, grading, decision, answer")
    ] = "retrieval",
    limit: Annotated[int | None, typer.Option(min=1, help="this many questions, spread evenly")] = None,
    top_k: Annotated[int, typer.Option(min=1, max=50, help="passages to grade")] = 10,
    output: Annotated[
        Path | None, typer.Option("--out", file_okay=False, help="directory for report.json and report.html")
    ] = None,
    vectors: Annotated[
        Path | None, typer.Option(help=".npz with ids and vectors of the corpus, by the same embedder")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the report as JSON")] = False,
    gate: Annotated[Path | None, typer.Option(help="TOML with bounds; a figure beyond one fails the command")] = None,
    compare: Annotated[
        tuple[Path, Path] | None, typer.Option(metavar="BEFORE AFTER", help="compare two report.json instead")
    ] = None,
) -> None:
    """Measure search, judge, decisions and answers on your own questions, or compare two such reports."""
    if missing := [name for name in EXTRA if importlib.util.find_spec(name) is None]:
        fail(f"cairn eval needs {', '.join(missing)}: pip install 'cairn[eval]', or `make test` in a checkout")
    set_up_logs(ObserveSettings(log_level="warning"))
    try:
        if compare is not None:
            _compare(*compare, as_json=as_json)
        elif folder is None:
            fail("name the directory of an evaluation set, or two reports after --compare; see docs/evaluation.md")
        else:
            wanted = {"split": split, "stages": stages, "limit": limit, "top_k": top_k, "vectors": vectors}
            _evaluate(folder, wanted, output=output, gate=gate, as_json=as_json)
    except ValidationError as error:
        fail(explain(error))
    except (CairnError, OSError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _evaluate(folder: Path, wanted: dict[str, Any], *, output: Path | None, gate: Path | None, as_json: bool) -> None:
    from evals import evaluating  # noqa: PLC0415  an extra, and a second to load
    from evals.gate import check_stages, misses, read_gate  # noqa: PLC0415
    from evals.report import lines_of  # noqa: PLC0415

    bounds = read_gate(gate) if gate is not None else []
    home = HomeSettings().data_dir
    stages = _stages(wanted.pop("stages"))
    check_stages(bounds, stages)
    command = shlex.join(["cairn", *sys.argv[1:]])
    request = evaluating.Request(folder=folder, data_dir=home, stages=stages, command=command, **wanted)
    with _progress(quiet=as_json) as told:
        sheet = asyncio.run(evaluating.evaluate(request, told))
    place = output or home / "eval" / "reports" / f"{sheet.dataset.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    _write(sheet, place)
    if as_json:
        print_json(sheet)
    else:
        for line in lines_of(sheet):
            out.print(line)
        out.print(f"report: {place / 'report.html'}", markup=False)
    if missed := misses(bounds, sheet):
        fail("\n".join(["below the gate:", *(f"  {miss.line()}" for miss in missed)]), Exit.FAILED)
    if bounds:
        err.print(f"all {len(bounds)} bounds kept")


def _compare(before: Path, after: Path, *, as_json: bool) -> None:
    from dataclasses import asdict  # noqa: PLC0415

    from evals.comparing import compare  # noqa: PLC0415  an extra, and a second to load
    from evals.report import lines_of_comparison  # noqa: PLC0415
    from evals.sheet import read_sheet  # noqa: PLC0415

    comparison = compare(read_sheet(before), read_sheet(after))
    if as_json:
        differences = [
            {**asdict(each), "difference": each.mean, "verdict": each.verdict} for each in comparison.differences
        ]
        print_json({**asdict(comparison), "differences": differences})
        return
    for line in lines_of_comparison(comparison):
        out.print(line)


def _stages(names: str) -> frozenset[Stage]:
    from evals.running import STAGES  # noqa: PLC0415

    wanted = {name.strip() for name in names.split(",") if name.strip()}
    if not wanted or (unknown := sorted(wanted - set(STAGES))):
        fail(f"--stages: {', '.join(unknown) if wanted else 'none'} given; there are {', '.join(STAGES)}")
    return frozenset(stage for stage in STAGES if stage in wanted)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Told]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, disable=quiet or not err.is_terminal, transient=True) as progress:
        tasks = {}

        def told(doing: str, done: int, total: int) -> None:
            if doing not in tasks:
                tasks[doing] = progress.add_task(doing, total=total)
            progress.update(tasks[doing], completed=done, total=total)

        yield told


def _write(sheet: Sheet, place: Path) -> None:
    from evals.page import page_of  # noqa: PLC0415

    place.mkdir(parents=True, exist_ok=True)
    (place / "report.json").write_text(sheet.model_dump_json(indent=1) + "\n", "utf-8")
    (place / "report.html").write_text(page_of(sheet), "utf-8")
