"""All that reading a page needs, loaded. For the process that the reading ones are forked from, and nobody else."""

from contextlib import suppress

from shared.clients.pages.extracting import extract
from shared.clients.pages.fetching import Fetched
from shared.documents.settings import SplitSettings
from shared.errors import Misconfigured

_SAMPLE = b"<html><body><article><p>" + b"A sentence of a page. " * 20 + b"</p></article></body></html>"

with suppress(Misconfigured):  # each page will say so
    extract(Fetched("http://example.org/", 0.0, "text/html", None, _SAMPLE), SplitSettings(), 1)
