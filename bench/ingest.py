"""How fast documents come into the index, and what memory that takes.

    python -m bench.ingest [--passages 20000 100000] [--per-document 20]     all but the embedder
    python -m bench.ingest --real-embedder [--texts 120]                     the embedder alone

The first ingests generated Markdown by `cairn ingest` through an embedded Redis and one retriever process, with an
embeddings endpoint on loopback that answers from a hash (384 dimensions): a first time, and again unchanged. Resident
memory is read from /proc while it runs, at a quarter, half, three quarters and the end of the messages; `anon` is the
part that is no mapped file. CPU is that of the process itself. A retriever holds the vectors of the whole index (1.5 kB
a passage at 384 dimensions) and its words, so it grows with the index; `cairn ingest` must not grow.

The second is the embedded e5 by number of processes, on texts of about 900 characters.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis as redis_sync

from shared.clients.embedded_e5 import EmbeddedE5
from shared.runtime.embedded_redis import start_server, stop_server
from shared.runtime.keys import Keys
from shared.settings import core_count
from tests.support.mock_embeddings import embeddings_process

DIMENSION = 384
PASSAGE_CHARS = 900
SAMPLE_EVERY_S = 0.05
QUARTERS = (0.25, 0.5, 0.75, 1.0)
VOCABULARY = 50_000
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmn" for vowel in "aeiou"]


def words(rng: random.Random, chars: int) -> str:
    """About `chars` characters of made-up words, the n-th most common one 1/n as often as the first (Zipf)."""
    found: list[str] = []
    while chars > 0:
        number = int(VOCABULARY ** rng.random())
        word = _SYLLABLES[number % 40] + _SYLLABLES[number // 40 % 40] + _SYLLABLES[number // 1600]
        found.append(word)
        chars -= len(word) + 1
    return " ".join(found)


def write_documents(home: Path, passages: int, per_document: int) -> None:
    """Markdown files of `per_document` sections, each of which becomes a passage."""
    home.mkdir()
    rng = random.Random(7)
    for start in range(0, passages, per_document):
        sections = (
            f"## Part {number}\n\n{words(rng, PASSAGE_CHARS)}.\n"
            for number in range(start, min(passages, start + per_document))
        )
        text = f"# Guide {start}\n\n" + "\n".join(sections)
        (home / f"guide-{start:07}.md").write_text(text, encoding="utf-8")


@dataclass
class Watched:
    """What a process has used so far. Sizes in MB, time in seconds."""

    pid: int
    rss: list[float] = field(default_factory=list)
    anon: list[float] = field(default_factory=list)
    cpu_s: float = 0.0

    def look(self) -> None:
        """Read /proc; a process that has ended leaves its last figures."""
        with contextlib.suppress(OSError, KeyError):
            status = Path(f"/proc/{self.pid}/status").read_text()
            facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            rss, anon = (int(facts[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon"))
            ticks = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            self.rss.append(rss)
            self.anon.append(anon)
            self.cpu_s = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Measured:
    """One run of `cairn ingest`."""

    seconds: float
    passages: int
    settled: list[int]
    """Messages done at each sample."""
    ingest: Watched
    retriever: Watched
    index_mb: float

    def at(self, sizes: list[float]) -> list[float]:
        """These samples at each quarter of the messages."""
        return [sizes[min(self._sample(share), len(sizes) - 1)] for share in QUARTERS]

    def _sample(self, share: float) -> int:
        wanted = self.settled[0] + share * (self.settled[-1] - self.settled[0])
        return next(number for number, done in enumerate(self.settled) if done >= wanted)


@dataclass(frozen=True)
class Place:
    """An embedded Redis, a data directory and the environment that names both."""

    home: Path
    redis: Any
    environment: dict[str, str]

    @property
    def settled(self) -> int:
        """Ingest messages done so far."""
        facts = self.redis.xinfo_stream(Keys().inbox("ingest"))
        return int(facts["entries-added"]) - int(facts["length"])

    @property
    def index_mb(self) -> float:
        """Blocks on the disk."""
        return sum(file.stat().st_blocks for file in (self.home / "data" / "qdrant").rglob("*")) * 512 / 1e6


@contextlib.contextmanager
def opened_place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as directory, embeddings_process(dimension=DIMENSION) as embeddings_url:
        home = Path(directory)
        server, _ = start_server(home / "redis")
        client: Any = redis_sync.Redis.from_url(server.url)
        client.xgroup_create(Keys().inbox("ingest"), "retriever", id="0", mkstream=True)
        environment = os.environ | {
            "CAIRN_REDIS_URL": server.url,
            "CAIRN_DATA_DIR": str(home / "data"),
            "CAIRN_EMBED_BASE_URL": embeddings_url,
            "CAIRN_EMBED_MODEL": "mock",
            "CAIRN_LOG_LEVEL": "error",
        }
        try:
            yield Place(home, client, environment)
        finally:
            client.close()
            stop_server(home / "redis")


def ingest(place: Place, retriever_pid: int) -> Measured:
    """Run `cairn ingest` over the documents, watching both processes."""
    command = [sys.executable, "-m", "shared.cli", "ingest", "--json", str(place.home / "docs")]
    settled: list[int] = []
    retriever = Watched(retriever_pid)
    retriever.look()
    before_s, started = retriever.cpu_s, time.perf_counter()
    with subprocess.Popen(command, env=place.environment, stdout=subprocess.PIPE, text=True) as process:
        watched = Watched(process.pid)
        while process.poll() is None:
            settled.append(place.settled)
            watched.look()
            retriever.look()
            time.sleep(SAMPLE_EVERY_S)
        seconds = time.perf_counter() - started
        assert process.stdout is not None
        report = json.loads(process.stdout.read())
    if process.returncode:
        raise RuntimeError(f"cairn ingest ended with code {process.returncode}: {report['errors']}")
    retriever.cpu_s -= before_s
    return Measured(seconds, report["passages"], settled, watched, retriever, place.index_mb)


def run(passages: int, per_document: int) -> tuple[Measured, Measured]:
    """Ingest `passages` for the first time, and again unchanged."""
    with opened_place() as place:
        write_documents(place.home / "docs", passages, per_document)
        command = [sys.executable, "-m", "services.retriever.main"]
        with subprocess.Popen(command, env=place.environment) as retriever:
            try:
                first = ingest(place, retriever.pid)
                return first, ingest(place, retriever.pid)
            finally:
                retriever.terminate()


def show(name: str, measured: Measured) -> None:
    rate = measured.passages / measured.seconds
    print(f"  {name}: {measured.passages:,} passages in {measured.seconds:.1f} s, {rate:,.0f} passages/s")
    for process, watched in (("cairn ingest", measured.ingest), ("retriever", measured.retriever)):
        rss, anon = (" ".join(f"{size:5.0f}" for size in measured.at(sizes)) for sizes in (watched.rss, watched.anon))
        print(
            f"    {process:<13} RSS {rss} MB at 25 50 75 100 %, anon {anon}; peak {max(watched.rss):.0f} MB; "
            f"CPU {watched.cpu_s / measured.passages * 1000:.2f} ms a passage"
        )
    print(f"    index         {measured.index_mb:.0f} MB on the disk")


async def embedding_rate(processes: int, texts: list[str]) -> float:
    """Passages a second of the embedded e5, its processes started before."""
    embedder = EmbeddedE5(processes=processes)
    try:
        await embedder.embed_passages(texts[: 2 * processes])
        started = time.perf_counter()
        await embedder.embed_passages(texts)
        return len(texts) / (time.perf_counter() - started)
    finally:
        await embedder.aclose()


def measure_embedder(count: int) -> None:
    rng = random.Random(11)
    texts = [words(rng, PASSAGE_CHARS) for _ in range(count)]
    print(f"embedded e5, {count} texts of {sum(map(len, texts)) // count} characters")
    alone: float | None = None
    for processes in sorted({1, 2, core_count()}):
        rate = asyncio.run(embedding_rate(processes, texts))
        alone = alone or rate
        print(f"  {processes} processes: {rate:6.2f} passages/s   x{rate / alone:.2f} of one")


def machine() -> str:
    """What the figures were measured on."""
    return f"{core_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, nargs="+", default=[20_000])
    parser.add_argument("--per-document", type=int, default=20, help="passages a document")
    parser.add_argument("--real-embedder", action="store_true", help="measure the embedded embedder instead")
    parser.add_argument("--texts", type=int, default=120)
    chosen = parser.parse_args()
    print(machine())
    if chosen.real_embedder:
        measure_embedder(chosen.texts)
        return
    for passages in chosen.passages:
        print(f"{passages:,} passages of about {PASSAGE_CHARS} characters, {chosen.per_document} a document")
        first, again = run(passages, chosen.per_document)
        show("first time", first)
        show("unchanged", again)


if __name__ == "__main__":
    main()
