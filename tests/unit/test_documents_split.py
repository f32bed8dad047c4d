"""Splitting: nothing lost, nothing too long, nothing across sections. A character stands for a token here."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.documents import Block, SourceDocument, SplitSettings, split
from shared.documents.model import BlockKind

SMALL = SplitSettings(target=90, max=140)
FAST = settings(max_examples=40, deadline=None, phases=(Phase.explicit, Phase.generate, Phase.shrink))
KINDS: tuple[BlockKind, ...] = ("text", "table", "code")

# Words by number and length, which Hypothesis draws and shrinks fast; scripts without spaces may be cut anywhere.
words = st.builds(lambda number, size: f"{number}слово-éa" * size, st.integers(0, 999), st.integers(1, 2))
lines = st.lists(words, min_size=1, max_size=12).map(" ".join)
texts = st.lists(lines, min_size=1, max_size=8).map("\n".join)
block_lists = st.lists(
    st.builds(Block, texts, st.sampled_from(["", "A", "A › B"]), kind=st.sampled_from(KINDS)), max_size=5
)


def characters(text: str) -> int:
    """Stands for tokens; what joins two paragraphs counts for one, as a model's line breaks do."""
    return len(text.replace("\n\n", "\n"))


def document_of(*blocks: Block, language: str = "en") -> SourceDocument:
    return SourceDocument("d", "D", "d", language, {}, "hash", blocks)


def texts_of(*blocks: Block, sizes: SplitSettings = SMALL) -> list[str]:
    return [passage.text for passage in split(document_of(*blocks), sizes, characters)]


@FAST
@given(block_lists)
def test_every_word_is_in_a_passage_and_none_is_too_long(blocks: list[Block]) -> None:
    passages = split(document_of(*blocks), SMALL, characters)
    assert {word for block in blocks for word in block.text.split()} <= {w for p in passages for w in p.text.split()}
    assert all(0 < characters(passage.text) <= SMALL.max for passage in passages)
    assert [passage.ordinal for passage in passages] == list(range(len(passages)))


@FAST
@given(block_lists)
def test_text_and_code_keep_their_characters_in_order(blocks: list[Block]) -> None:
    kept = [block for block in blocks if block.kind != "table"]  # a cut table repeats its header
    joined = "".join(passage.text for passage in split(document_of(*kept), SMALL, characters))
    assert "".join(joined.split()) == "".join("".join(block.text for block in kept).split())


@FAST
@given(st.text(max_size=400), st.sampled_from(KINDS))
def test_any_text_fits(text: str, kind: BlockKind) -> None:
    assert all(0 < characters(piece) <= SMALL.max for piece in texts_of(Block(text.strip() or "x", kind=kind)))


def test_paragraphs_of_a_section_are_packed_up_to_the_target() -> None:
    sizes = SplitSettings(target=900, max=1_400)
    paragraph = "word " * 79 + "word"
    assert texts_of(*[Block(paragraph)] * 4, sizes=sizes) == [f"{paragraph}\n\n{paragraph}"] * 2


def test_passages_end_with_their_section_and_page() -> None:
    passages = split(
        document_of(Block("a", "A", "x"), Block("b", "B"), Block("c", "B", page=1), Block("d", "B", page=2)),
        SMALL,
        characters,
    )
    assert [(p.text, p.section, p.anchor, p.page) for p in passages] == [
        ("a", "A", "x", None),
        ("b", "B", None, None),
        ("c", "B", None, 1),
        ("d", "B", None, 2),
    ]


def test_a_table_stays_with_the_words_that_lead_to_it() -> None:
    table = "| a | b |\n|---|---|\n" + "\n".join(f"| {n} | {n} |" for n in range(8))
    assert len(table) > SMALL.target
    assert texts_of(Block("Prices:"), Block(table, kind="table")) == [f"Prices:\n\n{table}"]


def test_a_long_table_repeats_its_header() -> None:
    head = "| size | price |\n|---|---|"
    rows = [f"| {n} | {n} € |" for n in range(30)]
    found = texts_of(Block(f"{head}\n" + "\n".join(rows), kind="table"))
    assert len(found) > 1
    assert all(piece.startswith(head) for piece in found)
    assert [row for piece in found for row in piece.split("\n")[2:]] == rows


def test_long_code_is_cut_between_lines() -> None:
    code = [f"line_{n} = compute({n})" for n in range(30)]
    assert [line for piece in texts_of(Block("\n".join(code), kind="code")) for line in piece.split("\n")] == code


def test_overlap_repeats_where_a_text_is_cut() -> None:
    text = " ".join(f"w{n}" for n in range(100))
    first, second, *_ = texts_of(Block(text), sizes=SplitSettings(target=90, max=140, overlap=30))
    assert second.split()[0] in first.split()


def test_an_untranslated_section_is_told_from_its_document() -> None:
    english = "Debian distributions are being created both in close cooperation with the project and by others. " * 3
    passages = split(document_of(Block("Да.", "A"), Block(english, "B"), language="ru"), SMALL, characters)
    assert [passage.language for passage in passages][:2] == ["ru", "en"]


def test_settings_must_fit_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_SPLIT_TARGET", "300")
    assert SplitSettings().target == 300
    with pytest.raises(ValidationError, match="CAIRN_SPLIT_TARGET"):
        SplitSettings(target=2_000)
    with pytest.raises(ValidationError, match="CAIRN_SPLIT_OVERLAP"):
        SplitSettings(target=100, overlap=80)


def test_a_long_title_takes_of_the_room_of_its_passages() -> None:
    text = "word " * 400
    sizes = SplitSettings(target=300, max=400)
    document = SourceDocument("d", "T" * 200, "d", "en", {}, "hash", (Block(text, "S" * 100),))
    longest = max(len(passage.text) for passage in split(document, sizes, characters))
    assert longest <= 400 - (200 + 1 + 100 - 120)
    buried = SourceDocument("d", "T" * 900, "d", "en", {}, "hash", (Block(text),))
    assert 50 < max(len(passage.text) for passage in split(buried, sizes, characters)) <= 100


def test_a_word_that_costs_more_than_a_passage_may_is_cut_all_the_same() -> None:
    pieces = [passage.text for passage in split(document_of(Block("﷽" * 50)), SplitSettings(target=16, max=16), dear)]
    assert "".join(pieces) == "﷽" * 50
    assert all(dear(piece) <= 16 for piece in pieces)


def dear(text: str) -> int:
    return 9 * len(text)


def test_what_costs_nothing_is_bounded_all_the_same() -> None:
    passages = split(document_of(Block("\U00013000" * 100_000)), SplitSettings(), lambda _text: 1)
    assert max(len(passage.text) for passage in passages) <= 380 * 12
