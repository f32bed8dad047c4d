"""An evaluation set from its folder: DIR/corpus.jsonl[.gz] or DIR/files/, and questions in DIR/SPLIT/ or in DIR."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from evals.corpus import Corpus, corpus_files, read_corpus
from evals.dataset import Dataset, EvalQuestion, Gold, JudgedPair
from evals.lines import InvalidDataset, fingerprint, json_lines, tab_rows, whole_number
from shared.contracts import MAX_QUESTION_CHARS, PUBLIC_TENANT, Name, Principal, Role
from shared.language import detect_language

QRELS_COLUMNS: Final = ("query-id", "corpus-id", "score")
PAIRS_COLUMNS: Final = ("query-id", "corpus-id", "label")


class _GoldLine(BaseModel):
    path: str
    anchor: str | None = None
    body_lang: str | None = Field(default=None, validation_alias=AliasChoices("body_lang", "lang"))


class _QueryLine(BaseModel):
    """One line of queries.jsonl. BEIR's `_id` and `text` do, too; keys that are not ours are passed over."""

    model_config = ConfigDict(coerce_numbers_to_str=True, str_strip_whitespace=True)

    id: str = Field(validation_alias=AliasChoices("id", "_id"), min_length=1)
    question: str = Field(
        validation_alias=AliasChoices("question", "text"), min_length=1, max_length=MAX_QUESTION_CHARS
    )
    answers: tuple[str, ...] = ()
    answerable: bool | None = None
    lang: str | None = Field(default=None, min_length=2, max_length=3)
    kind: str | None = None
    gold: tuple[_GoldLine, ...] = ()
    tenant: Name = PUBLIC_TENANT
    roles: tuple[Role, ...] = ()
    region: str | None = None


@dataclass(frozen=True, slots=True)
class _Files:
    """Where the parts of a set lie."""

    queries: Path
    qrels: Path | None
    pairs: Path | None
    is_beir: bool
    """One file of queries for all splits: those without a row in this split's qrels are of another one."""

    @property
    def present(self) -> list[Path]:
        return [path for path in (self.queries, self.qrels, self.pairs) if path is not None]


def load(folder: Path, split: str = "dev") -> Dataset:
    """The evaluation set in this folder. Raises InvalidDataset, which names the file and line at fault."""
    if not folder.is_dir():
        raise InvalidDataset(f"{folder}: there is no such directory")
    files = _find(folder, split)
    corpus = read_corpus(folder)
    relevant = _read_qrels(files.qrels, corpus) if files.qrels is not None else {}
    questions = _read_queries(files, corpus, {query_id: golds for query_id, (_, golds) in relevant.items()})
    for query_id, (line, _) in relevant.items():
        if query_id not in questions:
            assert files.qrels is not None
            raise InvalidDataset.at(files.qrels, line, f"no question {query_id!r} in {files.queries}")
    kept = [each for each in questions.values() if not files.is_beir or each.id in relevant]
    if not kept:
        raise InvalidDataset(f"{files.queries}: there is no question for split {split!r} in it")
    return Dataset(
        name=folder.resolve().name,
        folder=folder,
        split=split,
        corpus=corpus,
        questions=tuple(kept),
        pairs=_read_pairs(files.pairs, corpus, questions) if files.pairs is not None else (),
        fingerprint=fingerprint([*corpus_files(folder), *files.present]),
    )


def _find(folder: Path, split: str) -> _Files:
    base = folder / split if (folder / split / "queries.jsonl").is_file() else folder
    queries, qrels, pairs = base / "queries.jsonl", base / "qrels.tsv", base / "pairs.tsv"
    if not queries.is_file():
        raise InvalidDataset(f"{folder}: there is neither {split}/queries.jsonl nor queries.jsonl in it")
    beir = folder / "qrels" / f"{split}.tsv"
    is_beir = not qrels.is_file() and beir.is_file()
    if not is_beir and not qrels.is_file() and (others := sorted(each.stem for each in beir.parent.glob("*.tsv"))):
        raise InvalidDataset(f"{folder}: no qrels for split {split!r}; there are {', '.join(others)}")
    return _Files(
        queries, beir if is_beir else qrels if qrels.is_file() else None, pairs if pairs.is_file() else None, is_beir
    )


def _read_qrels(path: Path, corpus: Corpus) -> dict[str, tuple[int, list[Gold]]]:
    """First line and what is relevant, by question. Rows with a score of 0 are judgements, too, but no gold."""
    found: dict[str, tuple[int, list[Gold]]] = {}
    for number, row in tab_rows(path, QRELS_COLUMNS):
        _, golds = found.setdefault(row["query-id"], (number, []))
        score, corpus_id = whole_number(path, number, "score", row["score"]), row["corpus-id"]
        if score <= 0:
            continue
        if corpus_id not in corpus:
            raise InvalidDataset.at(path, number, f"{corpus_id!r} is relevant but not in the corpus")
        if any(gold.document_id == corpus_id for gold in golds):
            raise InvalidDataset.at(path, number, f"{row['query-id']!r} and {corpus_id!r} stood above")
        golds.append(Gold(corpus_id, language=_language(corpus, corpus_id), score=score))
    return found


def _read_queries(files: _Files, corpus: Corpus, relevant: Mapping[str, list[Gold]]) -> dict[str, EvalQuestion]:
    found: dict[str, EvalQuestion] = {}
    for number, line in json_lines(files.queries, _QueryLine):
        if line.id in found:
            raise InvalidDataset.at(files.queries, number, f"id {line.id!r} stood above")
        gold = [Gold(each.path, each.anchor, each.body_lang or _language(corpus, each.path)) for each in line.gold]
        for each in gold:
            if each.document_id not in corpus:
                raise InvalidDataset.at(files.queries, number, f"gold {each.document_id!r} is not in the corpus")
        gold += relevant.get(line.id, [])
        found[line.id] = EvalQuestion(
            id=line.id,
            question=line.question,
            language=line.lang or detect_language(line.question),
            kind=line.kind,
            answerable=bool(gold or line.answers) if line.answerable is None else line.answerable,
            answers=tuple(answer for answer in line.answers if answer.strip()),
            gold=tuple(dict.fromkeys(gold)),
            principal=Principal(tenant=line.tenant, roles=line.roles, region=line.region),
        )
    return found


def _read_pairs(path: Path, corpus: Corpus, questions: Mapping[str, EvalQuestion]) -> tuple[JudgedPair, ...]:
    if corpus.from_files:
        raise InvalidDataset(f"{path}: judged pairs need passages with ids, that is a corpus.jsonl")
    found: dict[str, list[JudgedPair]] = defaultdict(list)
    for number, row in tab_rows(path, PAIRS_COLUMNS):
        query_id, corpus_id = row["query-id"], row["corpus-id"]
        if query_id not in questions:
            raise InvalidDataset.at(path, number, f"there is no question {query_id!r}")
        if corpus_id not in corpus:
            raise InvalidDataset.at(path, number, f"{corpus_id!r} is not in the corpus")
        label = whole_number(path, number, "label", row["label"])
        if label not in (0, 1):
            raise InvalidDataset.at(path, number, f"label is {label}, not 0 or 1")
        found[query_id].append(JudgedPair(query_id, corpus_id, label == 1, row.get("origin") or "pairs"))
    return tuple(pair for pairs in found.values() for pair in pairs)


def _language(corpus: Corpus, document_id: str) -> str | None:
    known = corpus.documents.get(document_id)
    return known.document.language if known is not None else None
