"""How the rewriter works."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_settings import NoDecode

from shared.contracts import PUBLIC_ROLE, Name, Principal, Role, Route
from shared.settings import group
from shared.settings_files import Settings


class Collection(BaseModel):
    """A collection that the model may choose by its description, and whom it is named to: tenants, and any of roles.

    None is everybody. What may be read there is for the search to say.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    description: Annotated[str, Field(min_length=1, max_length=500)]
    tenants: tuple[Name, ...] | None = None
    roles: tuple[Role, ...] | None = None

    def is_for(self, principal: Principal) -> bool:
        """Whether it is named in this asker's prompts."""
        by_role = self.roles is None or not {PUBLIC_ROLE, *principal.roles}.isdisjoint(self.roles)
        return by_role and (self.tenants is None or principal.tenant in self.tenants)


class RewritingPolicy(Settings):
    """What is asked of the model, where there is one; rules do what they can without."""

    model_config = group("CAIRN_REWRITER_")

    use_model: bool = True
    max_queries: Annotated[int, Field(ge=1, le=4)] = 4
    stand_alone: bool = True
    """Write a follow-up out, so that it can be understood without the earlier turns."""
    sub_questions: bool = True
    """Take comparisons apart."""
    hyde_routes: Annotated[tuple[Route, ...], NoDecode] = ()
    """Kinds of questions to make a passage up for, as a document might answer them; its vector searches, too."""
    small_talk: bool = True
    """Answer greetings and thanks without a search."""
    clarify: bool = True
    """Ask back where a question is unclear."""
    collections: tuple[Collection, ...] = ()
    timeout_s: Annotated[float, Field(gt=0)] = 15.0
    max_tokens: Annotated[int, Field(ge=32)] = 600
    share_of_time: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """Of the time to the deadline, what rewriting may take at most."""

    @field_validator("hyde_routes", mode="before")
    @classmethod
    def _with_commas(cls, value: object) -> object:
        return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value
