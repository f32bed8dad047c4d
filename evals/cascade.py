"""What the cascade saves and costs: only passages that the embedded judge is in doubt about go to the chat model.

The loss is against a chat model that is always right: pairs that the embedded judge decides by itself, and wrongly. A
helpful passage at or below the lower bound is wrongly rejected, another one at or above the upper wrongly accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from evals.figures import Figure, share

MAX_WRONG: Final = 0.005
"""Share of all pairs that may be decided wrongly without asking: one in two hundred."""

Bounds = tuple[float, float]
"""Scores in [0, 1]; what is strictly between is asked about."""


def cascade_figures(scores: Sequence[float], labels: Sequence[bool], bounds: Bounds) -> dict[str, Figure]:
    """Shares: `asked`, that go to the chat model; `wrong`, of all pairs; `wrong alone`, of those that do not go."""
    low, high = bounds
    asked = sum(low < score < high for score in scores)
    pairs = list(zip(scores, labels, strict=True))
    wrong = sum(label if score <= low else score >= high and not label for score, label in pairs)
    return {
        "asked": share(asked, len(scores)),
        "wrong": share(wrong, len(scores)),
        "wrong alone": share(wrong, len(scores) - asked),
    }


def choose(scores: Sequence[float], labels: Sequence[bool], max_wrong: float = MAX_WRONG) -> Bounds:
    """The bounds that ask about the fewest pairs with at most this share of all pairs decided wrongly.

    There must be more relevant and irrelevant pairs than may be wrong.
    """
    known, helps = np.asarray(scores), np.asarray(labels, dtype=bool)
    allowed = int(max_wrong * len(known))
    relevant, irrelevant = np.sort(known[helps]), np.sort(known[~helps])[::-1]
    # With n wrong at one end, its bound lies just before the next wrong one; the ends share what is allowed.
    lows = np.nextafter(relevant[: allowed + 1], 0.0)
    highs = np.nextafter(irrelevant[: allowed + 1], 1.0)[::-1]
    asked = [int(np.sum((known > low) & (known < high))) for low, high in zip(lows, highs, strict=True)]
    fewest = int(np.argmin(asked))
    return float(lows[fewest]), float(highs[fewest])
