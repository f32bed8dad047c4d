"""cairn dead list, show, retry, purge: messages that were given up."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.markup import escape
from rich.table import Table

from shared.cli.console import Exit, command, connected, fail, out, print_json
from shared.client import Client
from shared.contracts import COMMANDS, Command, Header, Ingest
from shared.runtime.steps import Steps
from shared.settings import RuntimeSettings

app = typer.Typer(help="Dead letters: list, show, retry, purge.", no_args_is_help=True)

LetterId = Annotated[str, typer.Argument(help="the dead letter's id, from `cairn dead list`")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]

RETRY_DEADLINE_S = 120.0


async def _letters(client: Client, limit: int) -> list[tuple[str, dict[str, Any]]]:
    entries: Any = await client.redis.xrevrange(client.keys.dead, count=limit)
    return [(entry_id.decode(), json.loads(fields[b"data"])) for entry_id, fields in entries]


async def _letter(client: Client, letter_id: str) -> dict[str, Any]:
    entries: Any = await client.redis.xrange(client.keys.dead, letter_id, letter_id)
    if not entries:
        fail(f"no dead letter {letter_id}", Exit.NOT_FOUND)
    found: dict[str, Any] = json.loads(entries[0][1][b"data"])
    return found


@app.command("list")
@command
async def list_letters(
    limit: Annotated[int, typer.Option(help="newest first, at most this many")] = 50, as_json: AsJson = False
) -> None:
    """List dead letters, newest first."""
    async with connected() as client:
        letters = await _letters(client, limit)
    if as_json:
        print_json([{"id": letter_id, **letter} for letter_id, letter in letters])
        return
    table = Table(box=None)
    for name in ("id", "stage", "reason", "job", "error"):
        table.add_column(name)
    for letter_id, letter in letters:
        table.add_row(
            letter_id, letter["stage"], letter["reason"], escape(str(letter["job_id"])), escape(letter["error"][:100])
        )
    out.print(table if letters else "no dead letters")


@app.command()
@command
async def show(letter_id: LetterId) -> None:
    """Show one dead letter, with its message."""
    async with connected() as client:
        print_json(await _letter(client, letter_id))


@app.command()
@command
async def retry(letter_id: LetterId) -> None:
    """Send a dead letter's message again.

    Its job has ended and stays ended: a question runs again as a new job from the stage where it failed, with the
    old id and a suffix, which is printed.
    """
    async with connected() as client:
        letter = await _letter(client, letter_id)
        if letter["reason"] in ("unknown", "superseded"):
            # Nobody vouches for its rights: it may have been forged.
            fail(f"the message belonged to no job ({letter['reason']}), so it isn't sent again", Exit.FAILED)
        if not letter["whole"]:
            fail("the message was too big to be kept whole; submit it again", Exit.FAILED)
        name = await _again(client, letter_id, letter)
        await client.redis.xdel(client.keys.dead, letter_id)
    out.print(name)


async def _again(client: Client, letter_id: str, letter: dict[str, Any]) -> str:
    if letter["inbox"] == "ingest":
        message = Ingest.model_validate_json(letter["fields"].get("data", ""))
        return await client.publish("ingest", message)
    models = {model.inbox: model for model in COMMANDS}
    try:
        found: Command = models[letter["inbox"]].model_validate_json(letter["fields"].get("data", ""))
    except (KeyError, ValidationError):
        fail("the message can't be read, so trying again can't help; submit the question again", Exit.FAILED)
    now = time.time()
    header = Header.model_validate(
        found.header.model_dump()
        | {
            "job_id": f"{found.header.job_id[:80]}~{letter_id}",
            "submitted_at": now,
            "deadline": now + RETRY_DEADLINE_S,
        }
    )
    steps = Steps(client.redis, client.keys, RuntimeSettings())
    fate = await steps.readmit(found.model_copy(update={"header": header}))
    if fate == "taken":
        out.print("had been sent again already")
    return header.job_id


@app.command()
@command
async def purge(
    letter_id: Annotated[str | None, typer.Argument(help="one dead letter; all of them with --all")] = None,
    everything: Annotated[bool, typer.Option("--all", help="delete every dead letter")] = False,
) -> None:
    """Delete dead letters."""
    if (letter_id is None) == (not everything):
        fail("name one dead letter, or pass --all", Exit.ERROR)
    async with connected() as client:
        if letter_id is not None:
            removed = await client.redis.xdel(client.keys.dead, letter_id)
        else:
            removed = await client.redis.xlen(client.keys.dead)
            await client.redis.delete(client.keys.dead)
    out.print(f"deleted {removed}")
