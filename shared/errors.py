"""What can go wrong, sorted once by what the worker does about it.

    CairnError
    ├── TransientError          tried again with backoff until the deadline; then `timed_out`, with the best there is
    │   ├── ModelUnavailable      chat model or judge: refused, timed out, 408, 429, 5xx
    │   ├── EmbedderUnavailable   embeddings endpoint: the same
    │   ├── RerankerUnavailable   re-ranking endpoint: the same
    │   ├── VectorStoreUnavailable
    │   └── SearchUnavailable     web search provider
    └── PermanentError          dead letter at once, and a `failed` outcome for the client
        ├── InvalidJob            the message breaks the contract
        ├── InvalidModelReply     a model answered with something that can't be read as asked
        ├── IndexMismatch         the collection was built by another embedder or splitter
        ├── NotAllowed            bad token, or somebody else's job
        ├── Overloaded            too many jobs run; submit again later
        └── Misconfigured         a setting must change first (401, unknown model, missing wheel)

Anything that is not a CairnError is a bug: the delivery is handed over again a few times, then dead-lettered.
Clients translate their vendor's errors at the edge, with `raise … from`.
"""

from __future__ import annotations


class CairnError(Exception):
    """Base of every error that Cairn raises on purpose; its text tells the reader what to do."""


class TransientError(CairnError):
    """Worth another try. `retry_after_s` is what the other side asked for (`Retry-After`), in seconds."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ModelUnavailable(TransientError):
    """The chat model or judge endpoint refused, timed out or answered 408, 429 or 5xx."""


class EmbedderUnavailable(TransientError):
    """The embeddings endpoint refused, timed out or answered 408, 429 or 5xx."""


class RerankerUnavailable(TransientError):
    """The re-ranking endpoint refused, timed out or answered 408, 429 or 5xx."""


class VectorStoreUnavailable(TransientError):
    """Qdrant can't be reached or refused for now."""


class SearchUnavailable(TransientError):
    """The web search provider can't be reached or refused for now."""


class PermanentError(CairnError):
    """Another try would end the same way."""


class InvalidJob(PermanentError):
    """The message breaks the contract; the text names the field."""


class InvalidModelReply(PermanentError):
    """A model's reply can't be read as what was asked for."""


class IndexMismatch(PermanentError):
    """The collection was built with another embedder or vector size; ingest into a new collection."""


class NotAllowed(PermanentError):
    """The token is missing, invalid or expired, or the job belongs to another tenant."""


class Overloaded(PermanentError):
    """More jobs run than the gateway may admit; the text says when to submit again."""


class Misconfigured(PermanentError):
    """A setting must change before this can work; the text names it."""
