"""Pages of the web, fetched safely and read: `open_page_reader(settings)`, then `read(url, timeout_s=…)`."""

from shared.clients.pages.model import PageReader, PageRefused, PageUnavailable, ReadPage, Reason
from shared.clients.pages.reader import open_page_reader
from shared.clients.pages.settings import PagesSettings

__all__ = [
    "PageReader",
    "PageRefused",
    "PageUnavailable",
    "PagesSettings",
    "ReadPage",
    "Reason",
    "open_page_reader",
]
