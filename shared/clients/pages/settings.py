"""Settings of reading web pages."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from shared.settings import PositiveSeconds, group
from shared.settings_files import Settings


class PagesSettings(Settings):
    """What may be fetched from the web, and what one page may cost."""

    model_config = group("CAIRN_PAGES_")

    ports: Annotated[tuple[Annotated[int, Field(ge=1, le=65_535)], ...], NoDecode] = (80, 443)
    """Ports that may be connected to."""
    allow_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Hosts that may have private addresses and any port: `wiki.internal`, or `10.0.0.7`."""
    timeout_s: PositiveSeconds = 5.0
    """Longest time for one page, with its redirects; a caller may give less."""
    max_bytes: Annotated[int, Field(ge=1_000)] = 5_000_000
    """Size of a page above which it is refused, as sent and as unpacked."""
    max_redirects: Annotated[int, Field(ge=0, le=20)] = 5
    max_passages: Annotated[int, Field(ge=1)] = 200
    """Passages kept of one page, from its beginning."""
    read_timeout_s: PositiveSeconds = 2.0
    """Longest time for extracting and splitting what was fetched."""
    processes: Annotated[int, Field(ge=1)] = 2
    """Processes that extract and split, some 80 MB each, beside as much that they share."""
    robots: bool = True
    """Whether a site's robots.txt is obeyed."""
    contact: Annotated[str, Field(pattern=r"^[ -~]*$", max_length=200)] = ""
    """Address or URL in the User-Agent by which a site's owner reaches you."""
    per_host: Annotated[int, Field(ge=1)] = 2
    """Requests to one host at once."""
    delay_s: Annotated[float, Field(ge=0)] = 0.2
    """Shortest time between the beginnings of two requests to one host."""
    cache_ttl_s: Annotated[float, Field(ge=0)] = 3_600.0
    """How long a page is given again without asking for it; a refusal at most a minute. 0 remembers nothing."""
    cache_pages: Annotated[int, Field(ge=1)] = 500
    """Pages kept; the oldest go first."""

    @field_validator("ports", "allow_hosts", mode="before")
    @classmethod
    def _with_commas(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("allow_hosts")
    @classmethod
    def _in_one_spelling(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(host.lower().strip("[]").removesuffix(".") for host in hosts)
