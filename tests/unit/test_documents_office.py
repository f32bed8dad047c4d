"""DOCX and CSV: structure as Word and spreadsheets keep it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.documents import SourceDocument, SplitSettings, read, split
from shared.documents.csv_table import delimiter_of, read_csv
from tests.unit.test_documents_support import docx, paragraph, table

PICTURE = (
    '<w:p><w:r><w:drawing><wp:inline><wp:docPr id="1" name="p" descr="A tent"/><a:graphic><a:graphicData><pic:pic>'
    '<pic:blipFill><a:blip r:embed="i"/></pic:blipFill></pic:pic></a:graphicData></a:graphic></wp:inline></w:drawing>'
    "</w:r></w:p>"
)


def read_one(directory: Path, name: str, content: str | bytes) -> SourceDocument:
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    [document] = read(path, root=directory)
    return document


# --- DOCX --------------------------------------------------------------------------------------------------------


def test_docx_headings_lists_and_tables(tmp_path: Path) -> None:
    body = (
        paragraph("Délais", "Titre1")
        + paragraph("Les retours sont gratuits.")
        + paragraph("Été", "Titre2")
        + paragraph("un", bullet=0)
        + paragraph("profond", bullet=1)
        + table(["Taille", "Prix"], ["a|b", "5 €"])
    )
    document = read_one(tmp_path, "a.docx", docx(body, title="Retours &amp; échanges"))

    assert (document.title, document.language) == ("Retours & échanges", "fr")
    assert [(block.text, block.section, block.kind) for block in document.blocks] == [
        ("Les retours sont gratuits.", "Délais", "text"),
        ("- un\n  - profond", "Délais › Été", "text"),
        ("| Taille | Prix |\n|---|---|\n| a\\|b | 5 € |", "Délais › Été", "table"),
    ]


@pytest.mark.parametrize(
    ("body", "title"),
    [
        (paragraph("Guide", "Titre") + paragraph("Tents", "Titre1") + paragraph("Text."), "Guide"),
        (paragraph("Tents", "Titre2") + paragraph("Text."), "Tents"),
        (paragraph("Text."), "my file"),
    ],
)
def test_docx_without_title_is_named_by_its_first_heading_or_file(tmp_path: Path, body: str, title: str) -> None:
    assert read_one(tmp_path, "my_file.docx", docx(body)).title == title


def test_docx_pictures_are_left_out(tmp_path: Path) -> None:
    document = read_one(tmp_path, "a.docx", docx(PICTURE + paragraph("Text.")))
    assert [block.text for block in document.blocks] == ["Text."]


def test_docx_rights_are_those_of_the_command_line(tmp_path: Path) -> None:
    assert read_one(tmp_path, "a.docx", docx(paragraph("Text."))).metadata == {}


# --- CSV ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_csv_becomes_pipe_rows(tmp_path: Path, delimiter: str) -> None:
    rows = [["size", "price"], ['"a\n| b"', '"5,50; or ""less"""'], ["c", "1"], [], ["lonely"], ["d", "2", "3"]]
    text = "\r\n".join(delimiter.join(row) for row in rows)
    document = read_one(tmp_path, "price-list_2026.csv", text)
    [block] = document.blocks
    assert (document.title, block.kind) == ("price list 2026", "table")
    assert block.text.split("\n") == [
        "| size | price |  |",
        "|---|---|---|",
        '| a \\| b | 5,50; or "less" |  |',
        "| c | 1 |  |",
        "| lonely |  |  |",
        "| d | 2 | 3 |",
    ]


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a;b\n1,5;2,5\n3,5;4,5", ";"),
        ("a,b\n1;2,3\n", ","),
        ("comment\nSize, price; more", "\t"),  # one column: no delimiter may cut it
        ('"a,b";c\n"d,e";f', ";"),
        ("a\tb, c\n1\t2, 3", "\t"),
        ("", "\t"),
    ],
)
def test_the_delimiter_is_the_one_that_fits_the_header(text: str, delimiter: str) -> None:
    assert delimiter_of(text) == delimiter


def test_csv_of_old_spreadsheets(tmp_path: Path) -> None:
    document = read_one(tmp_path, "a.csv", "Товар;Цена\nПалатка двухместная;100\nСпальный мешок;50".encode("cp1251"))
    assert document.language == "ru"
    assert "| Палатка двухместная | 100 |" in document.blocks[0].text


def test_a_tsv_is_read_as_a_table(tmp_path: Path) -> None:
    assert read_one(tmp_path, "a.tsv", "a\tb\n1\t2").blocks[0].text == "| a | b |\n|---|---|\n| 1 | 2 |"


@pytest.mark.parametrize("text", ["a,b", "a,b\n\n,\n", "\n\n"])
def test_csv_without_rows_has_no_text(text: str) -> None:
    assert read_csv(text).blocks == ()


def test_each_passage_of_a_csv_stands_under_the_header(tmp_path: Path) -> None:
    text = "size,price\n" + "\n".join(f"tent {number},{number}" for number in range(500))
    passages = split(read_one(tmp_path, "a.csv", text), SplitSettings())
    assert len(passages) > 5
    assert all(passage.text.startswith("| size | price |\n|---|---|\n| tent ") for passage in passages)
