"""Plots as SVG, to stand inside a page: drawn by matplotlib without a display, their words kept as text."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

_STYLE: Final[Any] = {
    "svg.fonttype": "none",  # text stays text: small, and to be searched
    "text.parse_math": False,  # a kind named "$x$" is a name
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888",
    "axes.axisbelow": True,
}
_BLUE: Final = "#2b6cb0"
_ORANGE: Final = "#dd8452"
_GREY: Final = "#888888"
_MAX_BARS: Final = 40
_BINS: Final = 30


def bars(values: Mapping[str, float | None], *, label: str) -> str:
    """One bar a group, the first at the top; figures in [0, 1]. Groups beyond 40 are left out."""
    shown = {group: value for group, value in values.items() if value is not None}
    names = list(shown)[:_MAX_BARS]
    figure = Figure(figsize=(6.4, 0.6 + 0.26 * len(names)))
    with mpl.rc_context(_STYLE):
        axes = figure.add_subplot()
        axes.barh(range(len(names)), [shown[name] for name in names], color=_BLUE, height=0.65)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xlabel(label)
        axes.grid(axis="x", color="#ddd")
        for place, name in enumerate(names):
            axes.annotate(f"{shown[name]:.3f}", (shown[name], place), (3, 0), textcoords="offset points", va="center")
        return _svg(figure, f"bars {label}")


def reliability(bins: Sequence[Mapping[str, Any]]) -> str:
    """Share of relevant pairs over the judge's score, by tenths; the diagonal is a judge that means what it says."""
    figure = Figure(figsize=(4.2, 3.6))
    with mpl.rc_context(_STYLE):
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=_GREY, linewidth=1, linestyle="--")
        most = max((each["n"] for each in bins), default=1)
        axes.plot([each["score"] for each in bins], [each["relevant"] for each in bins], color=_BLUE, linewidth=1)
        axes.scatter(
            [each["score"] for each in bins],
            [each["relevant"] for each in bins],
            s=[20 + 120 * each["n"] / most for each in bins],
            color=_BLUE,
        )
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlabel("score of the judge")
        axes.set_ylabel("share that is relevant")
        axes.grid(color="#ddd")
        return _svg(figure, "reliability")


def distribution(values: Sequence[float], *, label: str) -> str:
    """How often which time was taken, with median and 95th percentile; times >= 0."""
    figure = Figure(figsize=(6.4, 2.4))
    with mpl.rc_context(_STYLE):
        axes = figure.add_subplot()
        axes.hist(values, bins=min(_BINS, max(5, len(values) // 4)), color=_BLUE)
        ordered = sorted(values)
        for share, name in ((0.5, "p50"), (0.95, "p95")):
            place = ordered[min(len(ordered) - 1, int(share * len(ordered)))]
            axes.axvline(place, color=_ORANGE, linewidth=1.2)
            axes.annotate(name, (place, 1), (2, -9), xycoords=("data", "axes fraction"), textcoords="offset points")
        axes.set_xlim(left=0)
        axes.set_xlabel(label)
        axes.set_ylabel("questions")
        return _svg(figure, f"distribution {label}")


def _svg(figure: Figure, salt: str) -> str:
    """The figure as an `<svg>` element; ids are salted, for several stand on one page."""
    drawn = io.StringIO()
    with mpl.rc_context({**_STYLE, "svg.hashsalt": salt}), warnings.catch_warnings():
        # The page's own font has the letters that matplotlib's lacks; they are measured there, not drawn.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(drawn, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    text = drawn.getvalue()
    return text[text.index("<svg") :]
