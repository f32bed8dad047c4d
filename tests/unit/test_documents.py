"""Reading files: which ones, what is found in them, and what is said of those that can't be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.documents import ReadSettings, SourceDocument, UnreadableDocument, find_files, read
from shared.errors import PermanentError

RUSSIAN = "Привет! Это письмо о возврате товара. Срок возврата составляет тридцать дней."
FRENCH = "Les élèves français étaient très déçus. À Noël, le garçon prévenu répondit à sa mère."


def read_one(directory: Path, name: str, content: str | bytes) -> SourceDocument:
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    [document] = read(path, root=directory)
    return document


# --- which files -------------------------------------------------------------------------------------------------


def test_directories_are_searched_in_order_without_hidden_and_foreign_files(tmp_path: Path) -> None:
    for name in ("b.md", "a.HTML", "sub/c.jsonl", ".hidden.md", ".git/d.md", "picture.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "sub" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "broken.md").symlink_to(tmp_path / "nowhere.md")

    found = find_files([tmp_path / "b.md", tmp_path])

    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["b.md", "a.HTML", "sub/c.jsonl"]


def test_a_path_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableDocument, match=r"nowhere\.md"):
        find_files([tmp_path / "nowhere.md"])


# --- facts about a document --------------------------------------------------------------------------------------


def test_front_matter_gives_title_language_and_rights(tmp_path: Path) -> None:
    text = (
        "---\ntitle: Marges\nlang: fr-FR\nacl: [staff, hr]\ntenant: nk\nvalid_from: 2026-07-01\n---\n# Other\n\nText."
    )
    document = read_one(tmp_path, "a.md", text)

    assert (document.title, document.language) == ("Marges", "fr")
    assert document.metadata == {"acl": ["staff", "hr"], "tenant": "nk", "valid_from": "2026-07-01"}


@pytest.mark.parametrize(
    "head",
    ["acl: [staff", "acl: []", "acl:", "acl: {a: b}", "acl: [1]", "tenant: a b", "just words", "owner: [x]"],
)
def test_doubtful_front_matter_is_refused_rather_than_made_public(tmp_path: Path, head: str) -> None:
    with pytest.raises(UnreadableDocument, match=r"a\.md"):
        read_one(tmp_path, "a.md", f"---\n{head}\n---\nText.")


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("2026-07-01", "2026-07-01"),
        ("'20260701'", "2026-07-01"),
        ("2026-07-01 12:00:00", "2026-07-01T12:00:00"),
        ("2026-07-01T12:00Z", "2026-07-01T12:00:00+00:00"),
        ("' 2026-07-01T12:00+02:00 '", "2026-07-01T12:00:00+02:00"),
    ],
)
def test_validity_is_kept_as_iso_8601(tmp_path: Path, written: str, kept: str) -> None:
    assert read_one(tmp_path, "a.md", f"---\nvalid_to: {written}\n---\nText.").metadata == {"valid_to": kept}


def test_a_document_may_hold_for_one_day(tmp_path: Path) -> None:
    head = "valid_from: 2026-07-01T09:00\nvalid_to: 2026-07-01"
    assert len(read_one(tmp_path, "a.md", f"---\n{head}\n---\nText.").metadata) == 2


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ("valid_from: 2026-07-02\nvalid_to: 2026-07-01", "valid_from 2026-07-02 is after valid_to 2026-07-01"),
        ("valid_from: 2026-07-01T10:00Z\nvalid_to: 2026-07-01T11:00+02:00", "is after valid_to"),
        ("valid_to: soon", "valid_to is 'soon', not a date such as"),
        ("valid_to: 2026", "valid_to is 2026, not a date"),
        ("valid_from: 1751328000", "not a date"),
        ("valid_from: true", "not a date"),
        ("valid_from: ''", "not a date"),
        ("valid_from: [2026-07-01]", "not a date"),
        ("valid_from: 2026-02-30", "month"),
    ],
)
def test_validity_that_is_nonsense_refuses_the_file(tmp_path: Path, head: str, says: str) -> None:
    with pytest.raises(UnreadableDocument, match=says):
        read_one(tmp_path, "a.md", f"---\n{head}\n---\nText.")


def test_front_matter_that_never_closes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableDocument, match="no closing"):
        read_one(tmp_path, "a.md", "---\nacl: [staff]\n\nSecret text.")


def test_a_rule_at_the_top_is_no_front_matter(tmp_path: Path) -> None:
    assert read_one(tmp_path, "a.md", "---\n\nText below a rule.").blocks[0].text == "Text below a rule."


def test_ids_are_relative_to_the_root(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    document = read_one(tmp_path, "sub/a.txt", "Text.")
    assert (document.document_id, document.uri, document.title) == ("sub/a.txt", "sub/a.txt", "a")

    with pytest.raises(UnreadableDocument, match="not below"):
        read(tmp_path / "sub" / "a.txt", root=tmp_path / "other")


@pytest.mark.parametrize("changed", ["# A\n\nOther text.", "# B\n\nText.", "---\nacl: [staff]\n---\n# A\n\nText."])
def test_the_hash_follows_text_title_and_rights(tmp_path: Path, changed: str) -> None:
    first = read_one(tmp_path, "a.md", "# A\n\nText.")
    assert read_one(tmp_path, "a.md", "\ufeff# A\r\n\r\nText.\r\n").content_hash == first.content_hash
    assert read_one(tmp_path, "a.md", changed).content_hash != first.content_hash


# --- text and its encodings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "begins", "language"),
    [
        (RUSSIAN.encode("cp1251"), "Привет!", "ru"),
        (RUSSIAN.encode("koi8-r"), "Привет!", "ru"),
        (RUSSIAN.encode("utf-16"), "Привет!", "ru"),
        (RUSSIAN.encode("utf-8-sig"), "Привет!", "ru"),
        (FRENCH.encode("latin-1"), "Les élèves français", "fr"),
    ],
)
def test_encodings_of_old_files_are_recognised(tmp_path: Path, raw: bytes, begins: str, language: str) -> None:
    document = read_one(tmp_path, "a.txt", raw)
    assert document.blocks[0].text.startswith(begins)
    assert document.language == language


def test_text_is_normalised_and_parted_by_blank_lines(tmp_path: Path) -> None:
    document = read_one(tmp_path, "a.txt", "BOOTS\r\n\r\ncafe\u0301\x07 one\rtwo\n \n\n  three")
    assert document.title == "BOOTS"
    assert [block.text for block in document.blocks] == ["BOOTS", "café one\ntwo", "three"]


# --- JSON Lines --------------------------------------------------------------------------------------------------


def test_jsonl_gives_one_document_a_line(tmp_path: Path) -> None:
    records = [
        {"id": 7, "title": "T", "text": "Un texte.", "url": "https://x.example/7", "lang": "fr", "acl": ["staff"]},
        {"text": "No\u0000 \ud800id.", "unknown": 1},
    ]
    path = tmp_path / "faq.jsonl"
    path.write_text("\n\n".join(json.dumps(record) for record in records))

    first, second = read(path, root=tmp_path)

    assert (first.document_id, first.uri, first.language) == ("faq.jsonl#7", "https://x.example/7", "fr")
    assert first.metadata == {"acl": ["staff"]}
    assert (second.document_id, second.uri, second.title) == ("faq.jsonl#3", "faq.jsonl", "No id.")
    assert second.content_hash


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"title": "x"}',
        '{"text": 1}',
        '{"text": " "}',
        '{"text": "x", "acl": 5}',
        '{"text": "x", "valid_to": 5}',
        '{"text":' + "[" * 50_000,
    ],
)
def test_a_bad_line_is_named_by_its_number(tmp_path: Path, line: str) -> None:
    with pytest.raises(UnreadableDocument, match=r"a\.jsonl: line 2"):
        read_one(tmp_path, "a.jsonl", '{"text": "fine"}\n' + line)


def test_an_id_that_comes_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableDocument, match="line 2"):
        read_one(tmp_path, "a.jsonl", '{"id": "x", "text": "a"}\n{"id": "x", "text": "b"}')


# --- what can't be read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "raw", "says"),
    [
        ("a.txt", b" \n", "empty"),
        ("a.md", b"# Only\n\n## Headings\n", "no text"),
        ("a.html", b"<nav>Menu</nav>", "no text"),
        ("a.txt", b"a\x00b", "binary"),
        ("a.xlsx", b"x", "xlsx"),
        ("a.docx", b"x", "not a readable DOCX"),
        ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 old", r"old \.doc"),
        ("a.csv", b"size;price\n\n;\n", "no text"),
        ("LICENSE", b"x", "type none"),
        ("a.pdf", b"PK\x03\x04 a zip in truth", "not a readable PDF"),
    ],
)
def test_the_reason_is_said(tmp_path: Path, name: str, raw: bytes, says: str) -> None:
    with pytest.raises(UnreadableDocument, match=says) as failure:
        read_one(tmp_path, name, raw)
    assert name in str(failure.value)
    assert isinstance(failure.value, PermanentError)


def test_too_big_a_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x" * 11)
    with pytest.raises(UnreadableDocument, match="CAIRN_READ_MAX_BYTES"):
        read(path, root=tmp_path, settings=ReadSettings(max_bytes=10))
