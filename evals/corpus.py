"""The corpus of an evaluation set: a file of ready passages, or real documents split as ingestion does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from evals.lines import InvalidDataset, json_lines
from shared.clients.index import passage_id_of
from shared.contracts import (
    ANY_REGION,
    PUBLIC_ROLE,
    PUBLIC_TENANT,
    Document,
    Ingest,
    Name,
    Passage,
    PassageDraft,
    Role,
)
from shared.documents import (
    SPLITTER_VERSION,
    SourceDocument,
    SplitSettings,
    UnreadableDocument,
    find_files,
    read,
    split,
)
from shared.language import detect_language

FILES: Final = "files"
PASSAGE_FILES: Final = ("corpus.jsonl", "corpus.jsonl.gz")
_PASSAGES_PER_MESSAGE: Final = 32


@dataclass(frozen=True, slots=True)
class CorpusDocument:
    """A document and its passages; of a corpus.jsonl, one line is a document of one passage."""

    document: Document
    drafts: tuple[PassageDraft, ...]

    def messages(self) -> Iterator[Ingest]:
        """The document as ingestion sends it, in parts of bounded size."""
        parts = range(0, len(self.drafts), _PASSAGES_PER_MESSAGE)
        for number, start in enumerate(parts):
            yield Ingest(
                run_id="eval",
                document=self.document,
                part=number,
                parts=len(parts),
                passage_total=len(self.drafts),
                passages=self.drafts[start : start + _PASSAGES_PER_MESSAGE],
            )

    def passages(self) -> Iterator[Passage]:
        """Its passages as a search would bring them, not scored."""
        known = self.document
        for draft in self.drafts:
            yield Passage(
                passage_id=passage_id_of(known, draft.ordinal),
                document_id=known.document_id,
                title=known.title,
                uri=known.uri,
                section=draft.section,
                anchor=draft.anchor,
                page=draft.page,
                text=draft.text,
                language=draft.language,
                tenant=known.tenant,
                acl=known.acl,
                region=known.region,
            )


@dataclass(frozen=True, slots=True)
class Corpus:
    """Everything that is searched."""

    documents: dict[str, CorpusDocument]
    """By id."""
    from_files: bool
    left_out: tuple[str, ...] = ()
    """Files that could not be read, each with the reason."""

    @property
    def passage_count(self) -> int:
        return sum(len(each.drafts) for each in self.documents.values())

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits over what goes into the index, and over how files were split."""
        digest = hashlib.sha256(SPLITTER_VERSION.encode() if self.from_files else b"")
        for each in self.documents.values():
            facts = [each.document.model_dump(mode="json"), [draft.model_dump(mode="json") for draft in each.drafts]]
            digest.update(json.dumps(facts, sort_keys=True).encode())
        return digest.hexdigest()[:16]

    def __contains__(self, document_id: str) -> bool:
        """Whether there is this document, or JSONL file with records."""
        return document_id in self.documents or any(
            known.partition("#")[0] == document_id for known in (self.documents if self.from_files else ())
        )


def corpus_files(folder: Path) -> list[Path]:
    """The files that make the corpus. Raises InvalidDataset unless there is exactly one kind of them."""
    lines = [folder / name for name in PASSAGE_FILES if (folder / name).is_file()]
    if len(lines) + (folder / FILES).is_dir() != 1:
        wanted = f"exactly one of {', '.join(PASSAGE_FILES)} and {FILES}/"
        raise InvalidDataset(f"{folder}: an evaluation set holds {wanted}")
    return lines or find_files([folder / FILES])


def read_corpus(folder: Path) -> Corpus:
    """The corpus in this folder. Raises InvalidDataset, with file and line, for a bad corpus.jsonl.

    A file that can't be read as a document is left out and reported, as ingestion does.
    """
    files = corpus_files(folder)
    if not (folder / FILES).is_dir():
        return Corpus(_documents_of(files[0]), from_files=False)
    documents: dict[str, CorpusDocument] = {}
    left_out = []
    for file in files:
        try:
            for source in read(file.absolute(), root=folder.absolute()):
                documents[source.document_id] = _split(source)
        except UnreadableDocument as unreadable:
            left_out.append(str(unreadable))
    return Corpus(documents, from_files=True, left_out=tuple(left_out))


class _Line(BaseModel):
    """One passage of a corpus.jsonl. BEIR's `_id` is an id, too; keys that are not ours are passed over."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    id: str = Field(validation_alias=AliasChoices("id", "_id"), min_length=1, max_length=512)
    title: str = ""
    text: str = Field(min_length=1)
    lang: str | None = Field(default=None, min_length=2, max_length=3)
    uri: str | None = Field(default=None, validation_alias=AliasChoices("uri", "url"))
    section: str = ""
    tenant: Name = PUBLIC_TENANT
    acl: tuple[Role, ...] = (PUBLIC_ROLE,)
    region: str = ANY_REGION


def _documents_of(path: Path) -> dict[str, CorpusDocument]:
    found: dict[str, CorpusDocument] = {}
    for number, line in json_lines(path, _Line):
        if line.id in found:
            raise InvalidDataset.at(path, number, f"id {line.id!r} stood above")
        language = line.lang or detect_language(f"{line.title}\n{line.text}")
        document = Document(
            document_id=line.id,
            title=line.title,
            uri=line.uri or line.id,
            content_hash=hashlib.sha256(line.model_dump_json().encode()).hexdigest(),
            language=language,
            tenant=line.tenant,
            acl=line.acl,
            region=line.region,
        )
        draft = PassageDraft(ordinal=0, text=line.text, section=line.section, language=language)
        found[line.id] = CorpusDocument(document, (draft,))
    if not found:
        raise InvalidDataset(f"{path}: there is no passage in it")
    return found


def _split(source: SourceDocument) -> CorpusDocument:
    metadata: dict[str, Any] = dict(source.metadata)
    document = Document(
        document_id=source.document_id,
        title=source.title,
        uri=source.uri,
        content_hash=source.content_hash,
        language=source.language,
        tenant=metadata.get("tenant", PUBLIC_TENANT),
        acl=tuple(metadata.get("acl") or (PUBLIC_ROLE,)),
        region=metadata.get("region", ANY_REGION),
        owner=metadata.get("owner"),
        valid_from=metadata.get("valid_from"),
        valid_to=metadata.get("valid_to"),
    )
    return CorpusDocument(document, tuple(split(source, SplitSettings())))
