"""The index that an evaluation searches: built once for each corpus, kept under `.cairn/eval`, used again."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from evals.corpus import Corpus
from evals.lines import InvalidDataset
from services.retriever.ingest import ingest
from shared.clients.embeddings import Embedder
from shared.clients.index import LEXICAL_VERSION, PassageIndex, open_index, passage_text
from shared.clients.index.manifest import FORMAT
from shared.clients.vector_cache import VectorCache, import_vectors
from shared.contracts import Ingest
from shared.settings import IndexSettings

COLLECTION: Final = "eval"
VECTOR_CACHE: Final = "vectors.sqlite"
"""The file that `open_embedder` keeps passage vectors in."""
_AT_ONCE: Final = 16
_CHECKED: Final = 2
"""Imported vectors that are computed again, to see whether they are of this embedder and this text."""
_SAME_COSINE: Final = 0.98
"""What float16 and another number of threads leave of a vector is above it; another text or prefix is far below."""

Progress = Callable[[str, int, int], None]
"""Told what is done, how many are, and of how many."""


def index_folder(corpus: Corpus, data_dir: Path, embedder: Embedder | None) -> Path:
    """Where the index of this corpus lies: another corpus, embedder or lexical encoding has another one."""
    searched_by = embedder.fingerprint if embedder is not None else "lexical"
    key = hashlib.sha256(f"{corpus.fingerprint}|{searched_by}|{LEXICAL_VERSION}|{FORMAT}".encode()).hexdigest()[:16]
    return data_dir / "eval" / key


async def built_index(
    corpus: Corpus, data_dir: Path, embedder: Embedder | None, *, vectors: Path | None, progress: Progress
) -> PassageIndex:
    """The index of the corpus, built now unless an earlier run has finished it; the caller closes it.

    `vectors` (see `import_file`) are only read where it has to be built. Raises InvalidDataset, Misconfigured where
    another process has the index open, and what the embedder raises.
    """
    folder = index_folder(corpus, data_dir, embedder)
    fingerprint = embedder.fingerprint if embedder is not None else None
    settings = IndexSettings(qdrant_url=None, qdrant_path=folder / "qdrant", collection=COLLECTION)
    index = open_index(settings, data_dir, fingerprint=fingerprint)
    done = folder / "built.json"
    try:
        held = await index.info(COLLECTION)
        if not done.is_file() or held is None or held.passages != corpus.passage_count:
            if vectors is not None and embedder is not None:
                await import_file(vectors, corpus, data_dir, embedder)
            await _build(corpus, index, embedder, progress)
            facts = {"corpus": corpus.fingerprint, "passages": corpus.passage_count, "index": index.version}
            _write(done, json.dumps(facts))
    except BaseException:
        await index.aclose()
        raise
    return index


async def _build(corpus: Corpus, index: PassageIndex, embedder: Embedder | None, progress: Progress) -> None:
    messages = [message for each in corpus.documents.values() for message in each.messages()]
    done, total = 0, corpus.passage_count
    progress("indexing", done, total)

    async def put(message: Ingest) -> int:
        await ingest(message, index=index, embedder=embedder, default_collection=COLLECTION)
        return len(message.passages)

    # The first one alone: the collection comes into being with it.
    for batch in (messages[:1], *(messages[at : at + _AT_ONCE] for at in range(1, len(messages), _AT_ONCE))):
        done += sum(await asyncio.gather(*map(put, batch)))
        progress("indexing", done, total)


async def import_file(path: Path, corpus: Corpus, data_dir: Path, embedder: Embedder) -> int:
    """Put the vectors of an .npz file into the cache; answers how many.

    The file holds `ids` (of corpus.jsonl) and `vectors` of shape (ids, dimension), made by this embedder of
    `passage_text`: title, section and text, a line each. Two are computed again to see that they were.
    Raises InvalidDataset.
    """
    if corpus.from_files:
        raise InvalidDataset(f"{path}: vectors belong to the ids of a corpus.jsonl, not to files")
    ids, vectors = _read_npz(path)
    unknown = [each for each in ids if each not in corpus.documents]
    if unknown:
        raise InvalidDataset(f"{path}: {len(unknown)} of {len(ids)} ids are not in the corpus, {unknown[0]!r} first")
    by_text = {_text_of(corpus, each): vectors[row] for row, each in enumerate(ids)}
    sample = sorted(by_text, key=len)[:_CHECKED]
    computed = await embedder.embed_passages(sample)
    for text, mine in zip(sample, computed, strict=True):
        theirs = by_text[text].astype(np.float32)
        if theirs.shape != mine.shape or _cosine(theirs, mine) < _SAME_COSINE:
            raise InvalidDataset(
                f"{path}: not the vectors of embedder {embedder.fingerprint} for title, newline and text: "
                f"{text[:60]!r} has another one"
            )
    cache = VectorCache(data_dir / VECTOR_CACHE)
    try:
        return await import_vectors(cache, embedder.fingerprint, by_text)
    finally:
        await cache.aclose()


def _text_of(corpus: Corpus, document_id: str) -> str:
    known = corpus.documents[document_id]
    return passage_text(known.document, known.drafts[0])


def _read_npz(path: Path) -> tuple[list[str], npt.NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            ids, vectors = [str(each) for each in stored["ids"]], stored["vectors"]
    except (OSError, ValueError, KeyError, BadZipFile, EOFError) as error:
        raise InvalidDataset(f"{path}: not an .npz file with `ids` and `vectors` ({error})") from error
    if vectors.ndim != 2 or len(vectors) != len(ids) or not np.issubdtype(vectors.dtype, np.floating):
        raise InvalidDataset(f"{path}: `vectors` is {vectors.dtype} {vectors.shape}, not {len(ids)} rows of floats")
    return ids, vectors


def _cosine(one: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> float:
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other) + 1e-12))


def _write(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text, "utf-8")
    os.replace(part, path)  # noqa: PTH105  one step: a killed run leaves no half of it
