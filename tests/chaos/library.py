"""The files that are ingested while processes are killed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

SEED = 20
PASSAGES = 5_000
SMALL, LARGE = 300, 6
EVERYWHERE = "cairnstone"
"""A word of every passage: who searches it finds all there is."""


class Library:
    """The files: many documents of one message, a few of many. The same call always writes the same bytes."""

    def __init__(self, home: Path) -> None:
        self.home = home
        rng = random.Random(SEED)
        sizes = {f"small-{number:03}": rng.randint(1, 6) for number in range(SMALL)}
        left = PASSAGES - sum(sizes.values())
        sizes |= {f"large-{number}": left * (number + 1) // LARGE - left * number // LARGE for number in range(LARGE)}
        self.sizes = sizes
        self.removed = [*(f"small-{number:03}" for number in range(0, SMALL, 10)), "large-1"]

    def write(self) -> None:
        """Everything in its first version."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        for name, size in self.sizes.items():
            self._write(name, [f"first {number}" for number in range(size)])

    def edit(self) -> None:
        """Every fourth small document changes, large ones grow, shrink or differ in the middle; some files go."""
        for name in list(self.sizes)[1:SMALL:4]:
            self._write(name, [f"second {number}" for number in range(self.sizes[name] % 4 + 1)])
        first = [f"first {number}" for number in range(max(self.sizes.values()))]
        self._write("large-2", [*first[: self.sizes["large-2"]], *(f"second {number}" for number in range(50))])
        self._write("large-3", first[:40])
        middle = self.sizes["large-4"] // 2
        self._write("large-4", [*first[:middle], "second", *first[middle + 1 : self.sizes["large-4"]]])
        for path in self.gone:
            path.unlink()

    @property
    def gone(self) -> list[Path]:
        return [self._path(name) for name in self.removed]

    def _path(self, name: str) -> Path:
        return self.home / f"{name}.md"

    def _write(self, name: str, sections: list[str]) -> None:
        body = "\n\n".join(f"## Part {text}\n\nThe {EVERYWHERE} of {name}, {text}." for text in sections)
        self._path(name).write_text(f"# Guide {name}\n\n{body}\n", encoding="utf-8")
