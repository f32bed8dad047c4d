"""Which passages an engine may look at: conditions on their payload, and the asker's rights as such. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from shared.contracts import ANY_REGION, PUBLIC_ROLE, Filters, Principal


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The field has at least one of these values."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoneOf:
    """The field has none of these values."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Within:
    """The number in the field is in this range, ends included; None leaves an end open."""

    field: str
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True, slots=True)
class Above:
    """The number in the field is greater."""

    field: str
    limit: float


Condition: TypeAlias = AnyOf | NoneOf | Within | Above
Conditions: TypeAlias = tuple[Condition, ...]
"""A passage must meet all of them."""

GONE: Final = AnyOf("state", ("gone",))
"""The marks of removed documents."""
NOT_GONE: Final = NoneOf("state", ("gone",))


@dataclass(frozen=True, slots=True)
class Rights:
    """What an asker may read, as the search filter states it: the same rule as `Principal.may_read`."""

    tenant: str
    roles: tuple[str, ...]
    """Holds the public role."""
    region: str | None

    @classmethod
    def of(cls, principal: Principal) -> Rights:
        return cls(principal.tenant, tuple(dict.fromkeys((PUBLIC_ROLE, *principal.roles))), principal.region)

    @property
    def conditions(self) -> Conditions:
        regions = (ANY_REGION,) if self.region is None else tuple(dict.fromkeys((ANY_REGION, self.region)))
        return (
            AnyOf("tenant", (self.tenant,)),
            AnyOf("acl", self.roles),
            AnyOf("region", regions),
            AnyOf("state", ("live",)),
        )


def narrowing(filters: Filters, *, now: float) -> Conditions:
    """The asker's own filters as conditions, and that documents hold, now or at the moment asked for."""
    wished = (AnyOf("document_id", filters.document_ids), AnyOf("language", filters.languages))
    at = now if filters.valid_at is None else filters.valid_at.timestamp()
    holds = (Within("valid_from_s", at_most=at), Within("valid_to_s", at_least=at))
    return (*(wish for wish in wished if wish.values), *holds)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a document lies, or all documents of a tenant."""

    collection: str
    tenant: str
    document_id: str | None = None

    @property
    def conditions(self) -> Conditions:
        """Its passages, of every edition."""
        documents = () if self.document_id is None else (AnyOf("document_id", (self.document_id,)),)
        return (AnyOf("tenant", (self.tenant,)), *documents)
