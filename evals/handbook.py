"""Answers on the sample handbook, asked through the running system.

    cairn up
    cairn ingest samples/handbook --root samples/handbook
    python -m evals.handbook

Every question of samples/questions.jsonl: does it end as expected, does the answer contain what it must, in the
question's language, does it cite the documents that have it, and does every quote stand word for word in its passage?
Questions with `roles` need the CAIRN_JWT_SECRET that the system was started with; without it they are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jwt
from pydantic import BaseModel

from services.gateway.settings import JwtSettings
from shared.cli.console import connected
from shared.client import Client, ask_and_wait
from shared.clients.index import passage_id_of
from shared.contracts import Answered, Ask, Document, Status
from shared.documents import SplitSettings, find_files, read, split, split_hash
from shared.language import detect_language

SAMPLES = Path(__file__).parent.parent / "samples"
AT_ONCE = 4
TOKEN_TTL_S = 600


class Asked(BaseModel):
    """A question and what its outcome must be."""

    id: str
    question: str
    lang: str
    expect: Status
    documents: tuple[str, ...] = ()
    """Each of them must be cited."""
    contains: tuple[str, ...] = ()
    """Each of them must stand in the answer."""
    roles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checked:
    """An outcome and what is wrong with it."""

    asked: Asked
    outcome: Answered
    findings: tuple[str, ...]

    def line(self) -> str:
        outcome = self.outcome
        facts = (
            f"{outcome.status:<10} {outcome.verdict or '-':<10} {outcome.confidence:.2f} {len(outcome.citations):>6}"
        )
        return f"{self.asked.id:<28} {facts}   {'; '.join(self.findings) or 'ok'}"


def passages_of(folder: Path) -> dict[str, str]:
    """Every passage's id and text, by reading and splitting the files as `cairn ingest` does."""
    passages, settings = {}, SplitSettings()
    for file in find_files([folder]):
        for source in read(file.absolute(), root=folder.absolute()):
            document = Document(
                document_id=source.document_id, title="", uri="", content_hash=split_hash(source, settings)
            )
            for draft in split(source, settings):
                passages[passage_id_of(document, draft.ordinal)] = draft.text
    return passages


def check(asked: Asked, outcome: Answered, passages: Mapping[str, str]) -> Checked:
    """What is wrong with an outcome; nothing for one that is as it must be."""
    findings = []
    if outcome.status != asked.expect:
        findings.append(f"{outcome.status}, not {asked.expect}")
    if outcome.language != asked.lang or (outcome.answer and _spoken(outcome.answer) != asked.lang):
        findings.append(f"not in {asked.lang}")
    if outcome.status == "answered":
        answer = _plain(outcome.answer)
        findings += [f"lacks {text!r}" for text in asked.contains if _plain(text) not in answer]
        cited = {citation.document_id.partition("#")[0] for citation in outcome.citations}
        findings += [f"does not cite {document}" for document in asked.documents if document not in cited]
    quotes = [(citation.passage_id, citation.quote) for citation in outcome.citations]
    findings += [f"invented quote {quote!r}" for place, quote in quotes if quote not in passages.get(place, "")]
    if len(set(quotes)) < len(quotes):
        findings.append("the same quote twice")
    return Checked(asked, outcome, tuple(findings))


def token_for(roles: tuple[str, ...], settings: JwtSettings) -> str:
    """A token of somebody with these roles, as the system's own issuer would sign it."""
    assert settings.secret is not None
    claims = {"sub": "evals", settings.roles_claim: list(roles), "exp": int(time.time()) + TOKEN_TTL_S}
    return jwt.encode(claims, settings.secret.get_secret_value(), algorithm="HS256")


async def evaluate(questions: list[Asked], passages: Mapping[str, str]) -> list[Checked]:
    """Ask them all; in their order."""
    settings, slots = JwtSettings(), asyncio.Semaphore(AT_ONCE)

    async def ask_one(client: Client, asked: Asked) -> Checked:
        token = token_for(asked.roles, settings) if asked.roles else None
        async with slots:
            outcome = await ask_and_wait(client, Ask(question=asked.question, token=token, web="off"))
        return check(asked, outcome, passages)

    possible = [asked for asked in questions if settings.secret is not None or not asked.roles]
    async with connected() as client:
        return list(await asyncio.gather(*(ask_one(client, asked) for asked in possible)))


def _plain(text: str) -> str:
    """`text` with single plain blanks: typography puts narrow and unbreakable ones into numbers."""
    return " ".join(text.split())


def _spoken(answer: str) -> str:
    """The language of its first line, which is ours; the quotes below speak that of their documents."""
    return detect_language(answer.split("\n", maxsplit=1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path, nargs="?", default=SAMPLES / "questions.jsonl")
    parser.add_argument("--folder", type=Path, default=SAMPLES / "handbook", help="what was ingested")
    parser.add_argument("--answers", action="store_true", help="print the answers, too")
    arguments = parser.parse_args()
    lines = arguments.questions.read_text("utf-8").splitlines()
    questions = [Asked.model_validate(json.loads(line)) for line in lines if line.strip()]
    checked = asyncio.run(evaluate(questions, passages_of(arguments.folder)))
    print(f"{'question':<28} {'status':<10} {'verdict':<10} conf quotes   findings")
    for each in checked:
        print(each.line())
        if arguments.answers:
            print(f"\n{each.asked.question}\n{each.outcome.answer}\n")
    good = sum(not each.findings for each in checked)
    print(f"\n{good} of {len(checked)} as they must be; {len(questions) - len(checked)} left out for want of a token")
    sys.exit(good < len(checked))


if __name__ == "__main__":
    main()
