"""Structure of Markdown, HTML and PDF: sections, anchors, pages, tables and code."""

from __future__ import annotations

from pathlib import Path

import pytest
from fpdf import FPDF
from fpdf.enums import AccessPermission
from pypdf import PdfReader

from shared.documents import SourceDocument, UnreadableDocument, read
from shared.documents.html import read_html
from shared.documents.markdown import github_slug, heading, read_markdown
from shared.documents.model import Content
from shared.documents.pdf_lines import PageHeading, join_lines, page_lines, parts_of


def places(content: Content) -> list[tuple[str, str, str | None]]:
    return [(block.text, block.section, block.anchor) for block in content.blocks]


# --- Markdown ----------------------------------------------------------------------------------------------------


def test_markdown_sections_carry_path_and_anchor() -> None:
    content = read_markdown(
        "Before\n\n# Top { #start }\n\n## Возврат *товара*, `v2`\n\nOne\n\n## Next\nTwo\n\n# Next\nX"
    )
    assert content.title == "Top"
    assert places(content) == [
        ("Before", "", None),
        ("One", "Top › Возврат товара, v2", "возврат-товара-v2"),
        ("Two", "Top › Next", "next"),
        ("X", "Next", "next-1"),
    ]


@pytest.mark.parametrize(
    ("source", "title", "anchor"),
    [
        ("A { #a-b }", "A", "a-b"),
        ("A {#a_b .cls}", "A", "a_b"),
        ('<a id="x"></a>A', "A", "x"),
        ("A <a name=x></a>", "A", "x"),
        ("Use [links](http://x) and `code {x}`", "Use links and code {x}", None),
    ],
)
def test_headings_name_their_own_anchor(source: str, title: str, anchor: str | None) -> None:
    assert heading(source) == (title, anchor)


def test_an_anchor_on_its_own_line_belongs_to_the_heading_below() -> None:
    assert places(read_markdown('<a name="fees"></a>\n\n## What it costs\n\n5 €')) == [("5 €", "What it costs", "fees")]


def test_slugs_are_those_of_github() -> None:
    assert github_slug("What's new? — Ёлки & C++ 3.11") == "whats-new--ёлки--c-311"


def test_markdown_tables_and_code_are_kept_as_they_stand() -> None:
    table, code = "| a | b |\n|---|---|\n| 1 | 2 |", "```python\n# no heading\n\nx = 1\n```"
    content = read_markdown(f"# T\n\n{table}\n\n{code}\n\n- one\n\n- two\n\n---\n")
    assert [(block.text, block.kind) for block in content.blocks] == [
        (table, "table"),
        (code, "code"),
        ("- one\n\n- two", "text"),
    ]


# --- HTML --------------------------------------------------------------------------------------------------------


def test_html_leaves_out_what_surrounds_the_content() -> None:
    content = read_html(
        "<html lang=fr-CA><title>Site</title><header><h1>Site</h1></header><nav>Menu</nav><script>x</script>"
        "<div class=navheader><table><tr><th>Prev<th>Next</table></div><article><header><h1>Title</h1></header>"
        "<p>One <b>bold</b>\n word<br>next line</p><!-- no --><form>Search</form></article><footer>End</footer>"
    )
    assert (content.title, content.language) == ("Title", "fr")
    assert places(content) == [("One bold word\nnext line", "Title", None)]


@pytest.mark.parametrize(
    ("page", "anchor"),
    [
        ("<h2 id=a>T</h2><p>x</p>", "a"),
        ("<h2><a name=b></a>T</h2><p>x</p>", "b"),
        ("<section id=c><h2>T<a class=headerlink href=#c>¶</a></h2><p>x</p></section>", "c"),
        (
            "<div class=section><div class=titlepage><div><div><h2><a id=d></a>T</h2></div></div></div><p>x</p></div>",
            "d",
        ),
        ("<div id=e><div><h2>T</h2></div><p>x</p></div>", "e"),
        ("<div id=no><h1>Other</h1><h2>T</h2><p>x</p></div>", "no"),  # inherited from the heading above
        ("<h2>T</h2><p>x</p>", None),
    ],
)
def test_html_headings_are_anchored(page: str, anchor: str | None) -> None:
    [block] = read_html(page).blocks
    assert block.section.split(" › ")[-1] == "T"
    assert block.anchor == anchor


def test_html_tables_lists_and_code() -> None:
    content = read_html(
        "<table><caption>Fees</caption><tr><th>Size<th>Price<tr><td>a|b<td>5 €<tr><td colspan=2>free</table>"
        "<ul><li>one<ul><li>deep</ul><li><p>two</p><p>more</p></ul><pre>x = 1\n  y\n</pre>"
    )
    assert [(block.text, block.kind) for block in content.blocks] == [
        ("Fees\n\n| Size | Price |\n|---|---|\n| a\\|b | 5 € |\n| free |  |", "table"),
        ("- one\n  - deep\n- two\n  more", "text"),
        ("x = 1\n  y", "code"),
    ]


def test_a_table_that_lays_out_the_page_is_no_table() -> None:
    content = read_html("<table><tr><td><ul><li>Menu</ul><td><h2>T</h2><p>Text</table>")
    assert [(block.text, block.kind) for block in content.blocks] == [("- Menu", "text"), ("Text", "text")]


def test_depth_does_not_matter() -> None:
    [block] = read_html("<div>" * 10_000 + "<h2>T</h2><p>deep</p>" + "</div>" * 10_000).blocks
    assert (block.text, block.section) == ("deep", "T")


def test_a_page_without_tags_is_text() -> None:
    assert read_html("name.html").blocks[0].text == "name.html"


# --- PDF ---------------------------------------------------------------------------------------------------------


def pdf_of(path: Path, pages: list[tuple[str, str]], *, password: str | None = None, owner: str = "owner") -> None:
    pdf = FPDF()
    pdf.set_font("helvetica", size=12)
    for title, text in pages:
        pdf.add_page()
        if title:
            pdf.start_section(title)
            pdf.multi_cell(0, text=title, new_x="LMARGIN", new_y="NEXT")
        if text:
            pdf.multi_cell(0, text=text)
    if password is not None:
        pdf.set_encryption(owner_password=owner, user_password=password, permissions=AccessPermission.none())
    pdf.output(str(path))


def read_pdf_file(path: Path) -> SourceDocument:
    [document] = read(path, root=path.parent)
    return document


def test_pdf_pages_and_outline(tmp_path: Path) -> None:
    long = "The size of a backpack follows the length of your back and not your height at all. " * 3
    pdf_of(tmp_path / "a.pdf", [("", "Foreword."), ("Boots", long.strip()), ("Packs", "Short one.")])

    document = read_pdf_file(tmp_path / "a.pdf")

    found = [(block.text, block.section, block.page) for block in document.blocks]
    assert found == [("Foreword.", "", 1), (long.strip(), "Boots", 2), ("Short one.", "Packs", 3)]


def test_a_pdf_locked_against_printing_only_is_read(tmp_path: Path) -> None:
    pdf_of(tmp_path / "a.pdf", [("", "Open to all.")], password="")
    assert PdfReader(tmp_path / "a.pdf").is_encrypted
    assert read_pdf_file(tmp_path / "a.pdf").blocks[0].text == "Open to all."


def test_pdfs_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    pdf_of(path, [("", "Secret.")], password="secret")
    with pytest.raises(UnreadableDocument, match=r"encrypted.*without a password"):
        read_pdf_file(path)
    pdf_of(path, [("", "")])
    with pytest.raises(UnreadableDocument, match=r"no text layer.*OCR"):
        read_pdf_file(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UnreadableDocument, match="not a readable PDF"):
        read_pdf_file(path)


def test_wrapped_lines_are_joined_and_words_mended() -> None:
    wrapped = "This paragraph runs over the whole width of its page and ends with a bro-"
    assert join_lines([wrapped, "ken word.", "Size Price", "S 5", "M 6"]) == [
        wrapped[:-1] + "ken word.",
        "Size Price\nS 5\nM 6",
    ]


def test_page_numbers_and_tables_of_contents_are_left_out() -> None:
    assert page_lines("Text\n\n more  text \n 12 ") == ["Text", "", "more text"]
    assert page_lines("\n".join(f"{n} Chapter . . . . . . . {n}" for n in range(9))) == []


def test_a_page_is_cut_where_its_headings_stand() -> None:
    lines = ["end of the last", "1.2 What’s", "this?", "answer", "1.3 Next", "more"]
    headings = [PageHeading(1, "What's this?"), PageHeading(1, "Next")]
    assert list(parts_of(lines, headings)) == [
        (None, ["end of the last"]),
        (headings[0], ["answer"]),
        (headings[1], ["more"]),
    ]
