"""What an embedder is: texts in, one vector each out; many models embed questions and passages differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Vector: TypeAlias = npt.NDArray[np.float32]
"""Shape (dimension,), float32, not necessarily of length 1."""
Vectors: TypeAlias = npt.NDArray[np.float32]
"""Shape (texts, dimension), float32; row i belongs to text i."""


class Embedder(Protocol):
    """Turns texts into vectors that lie near each other where the texts mean the same.

    Both methods give one row a text, in order, and an array of shape (0, 0) for no texts. They raise
    EmbedderUnavailable (try again), InvalidModelReply (unusable vectors) or Misconfigured (a setting is wrong).
    """

    @property
    def fingerprint(self) -> str:
        """Names the space the vectors lie in: vectors of different fingerprints must not be compared."""
        ...

    @property
    def dimension(self) -> int | None:
        """Size of the vectors; None until an endpoint has answered for the first time."""
        ...

    async def embed_questions(self, texts: Sequence[str]) -> Vectors:
        """Vectors of questions or search queries."""
        ...

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Vectors of passages to be found."""
        ...

    async def aclose(self) -> None:
        """Release connections, processes and files. Calling it twice does no harm."""
        ...


def no_vectors() -> Vectors:
    """The vectors of no texts."""
    return np.empty((0, 0), dtype=np.float32)


def clean(text: str) -> str:
    """`text` without what embedders choke on: NUL bytes (C engines stop there) and halves of surrogate pairs."""
    return text.replace("\x00", "").encode("utf-8", "ignore").decode("utf-8")
