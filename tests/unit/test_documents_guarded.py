"""Reading at arm's length: what the other process may do to itself, and that nobody else notices."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import pytest

from shared.documents import GuardedReader, ReadSettings, SplitSettings, UnreadableDocument, find_files, read, split
from shared.errors import Misconfigured
from tests.support.wait import wait_until

SIZES = SplitSettings()
E_DOCS = Path(__file__).parents[2].parent / "shared" / "data" / "e_docs" / "files"
ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples" / "handbook"

pytestmark = pytest.mark.skipif(os.name != "posix", reason="hanging files are made of named pipes")


def endless(directory: Path) -> Path:
    """A file that gives nothing and never ends: whoever reads it hangs."""
    path = directory / "endless.txt"
    os.mkfifo(path)
    return path


async def opened_by_reader(path: Path) -> int:
    """Writing end of the pipe, once somebody reads it; closed, it would end the file."""

    def opened() -> int | None:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return None

    return await wait_until(opened, within_s=60)


def has_reader(pipe: int) -> bool:
    try:
        os.write(pipe, b"x")
    except BlockingIOError:
        return True
    except BrokenPipeError:
        return False
    return True


@pytest.fixture(scope="module")
def reader() -> Iterator[GuardedReader]:
    with GuardedReader(ReadSettings(), SIZES) as guarded:
        yield guarded


def test_it_gives_what_reading_here_gives(reader: GuardedReader, tmp_path: Path) -> None:
    (tmp_path / "many.jsonl").write_text('{"text": "one"}\n{"text": "two"}')
    for path in [tmp_path / "many.jsonl", *find_files([SAMPLES])]:
        here = [(document, split(document, SIZES)) for document in read(path, root=path.parent)]
        there = reader.read(path, root=path.parent)
        assert [drafts for _, drafts in there] == [drafts for _, drafts in here]
        assert [document.content_hash for document, _ in there] == [document.content_hash for document, _ in here]


def test_a_long_document_comes_over_in_pages(reader: GuardedReader, tmp_path: Path) -> None:
    path = tmp_path / "long.md"
    path.write_text("".join(f"# {number}\n\nText {number}.\n\n" for number in range(2_500)))
    [(document, drafts)] = reader.read(path, root=tmp_path)
    assert (document.title, document.blocks) == ("0", ())
    assert [draft.text for draft in drafts] == [f"Text {number}." for number in range(2_500)]
    assert [draft.ordinal for draft in drafts] == list(range(2_500))


def test_a_file_that_hangs_costs_its_time_and_no_more(tmp_path: Path) -> None:
    path = endless(tmp_path)
    with (
        GuardedReader(ReadSettings(timeout_s=0.05), SIZES) as reader,
        pytest.raises(UnreadableDocument, match=r"endless\.txt: .* longer than 0\.05 s.*CAIRN_READ_TIMEOUT_S"),
    ):
        reader.read(path, root=tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux only")
def test_a_file_that_fills_the_memory_is_refused_and_the_next_one_read(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("Text.")
    (tmp_path / "wide.csv").write_text("aa,bb\n" * 2_000_000)
    limits = ReadSettings.model_construct(max_memory_bytes=300_000_000)
    with GuardedReader(limits, SIZES) as reader:
        with pytest.raises(UnreadableDocument, match=r"wide\.csv: .* more than 300000000 bytes of memory"):
            reader.read(tmp_path / "wide.csv", root=tmp_path)
        assert reader.read(tmp_path / "good.txt", root=tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux only")
def test_a_limit_under_which_it_cannot_start_is_named(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("Text.")
    limits = ReadSettings.model_construct(max_memory_bytes=1_000_000)
    with (
        GuardedReader(limits, SIZES) as reader,
        pytest.raises((Misconfigured, UnreadableDocument), match="CAIRN_READ_MAX_MEMORY_BYTES"),
    ):
        reader.read(tmp_path / "good.txt", root=tmp_path)


async def test_a_reader_that_crashes_is_replaced(reader: GuardedReader, tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("Text.")
    path = endless(tmp_path)
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(reader.read, path, root=tmp_path)
        pipe = await opened_by_reader(path)
        [child] = [process for process in multiprocessing.active_children() if process.name == "pebble_pool_worker"]
        assert child.pid is not None
        os.kill(child.pid, signal.SIGINT)  # Ctrl-C is for the parent to judge
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(UnreadableDocument, match=r"endless\.txt: it crashed the reader \(exit code -9\)"):
            reading.result()
        os.close(pipe)
        assert reader.read(tmp_path / "good.txt", root=tmp_path)


async def test_closing_ends_a_file_that_another_thread_reads(tmp_path: Path) -> None:
    path = endless(tmp_path)
    with GuardedReader(ReadSettings(), SIZES) as closed, ThreadPoolExecutor(1) as thread:
        reading = thread.submit(closed.read, path, root=tmp_path)
        pipe = await opened_by_reader(path)
        closed.close()
        with pytest.raises(CancelledError):
            reading.result(timeout=30)
        os.close(pipe)


async def test_it_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    path = endless(tmp_path)
    script = (
        "import sys; from pathlib import Path\n"
        "from shared.documents import GuardedReader, ReadSettings, SplitSettings\n"
        "if __name__ == '__main__':\n"
        "    path = Path(sys.argv[1])\n"
        "    GuardedReader(ReadSettings(), SplitSettings()).read(path, root=path.parent)\n"
    )
    (tmp_path / "parent.py").write_text(script)
    parent = subprocess.Popen(  # noqa: ASYNC220 - it has only to be killed
        [sys.executable, tmp_path / "parent.py", path],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    pipe = await opened_by_reader(path)
    parent.kill()
    parent.wait()
    await wait_until(lambda: not has_reader(pipe), within_s=60)
    os.close(pipe)


def test_its_errors_come_over_whole() -> None:
    error = UnreadableDocument(Path("a.md"), "reason", "remedy")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.path) == (str(error), error.path)


def test_the_manuals_come_over_whole(reader: GuardedReader) -> None:
    if not E_DOCS.exists():
        pytest.skip("the manuals of e_docs are not here")
    files = [path for path in find_files([E_DOCS]) if path.suffix == ".md"][:5]
    for path in files:
        [(document, drafts)] = reader.read(path, root=E_DOCS)
        [here] = read(path, root=E_DOCS)
        assert (document.content_hash, drafts) == (here.content_hash, split(here, SIZES))
