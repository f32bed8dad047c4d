"""Does the web search bring the passage that the corpus lacks? A little web on loopback, and questions it answers.

    python -m evals.web ../shared/data/b_multihop ../shared/data/d_fr_ru

Each set has `web_passages.jsonl.gz`, and in `dev/queries.jsonl` questions whose `web_gold` names passages of it. All
passages become pages of one web, with a search engine that speaks SearXNG's API. Search, pages, choice and judge are
the real ones with their default settings; no model, unless CAIRN_LLM_* names one. Shares of the questions whose passage

    found       was among the ten hits
    handed      was among the passages handed to the grader
    evidence    was kept by the judge
"""

from __future__ import annotations

import argparse
import asyncio
import html
import json
import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel

from evals.lines import json_lines
from services.grader import prompts
from services.grader.handler import grade
from services.grader.settings import GraderSettings
from services.websearch.handler import search_web
from shared.clients.chat import open_chat
from shared.clients.embeddings import open_embedder
from shared.clients.judge import open_judge
from shared.clients.pages import PagesSettings, open_page_reader
from shared.clients.web import open_web_search
from shared.contracts import Header, Passage, Question, SearchWeb
from shared.language import SPOKEN, terms
from shared.settings import EmbedSettings, HomeSettings, JudgeSettings, LlmSettings, WebSettings

WANTED = 0.85
"""Of the questions, the share whose passage must be handed to the grader; what it makes of it is the judge's matter."""
_RESULTS = 20
_SNIPPET_CHARS = 160


class _Page(BaseModel):
    id: str
    title: str
    text: str
    lang: str


class _Asked(BaseModel):
    id: str
    question: str
    lang: str
    kind: str
    web_gold: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far the wanted passage of one question came."""

    asked: _Asked
    found: bool
    handed_over: bool
    in_evidence: bool
    seconds: float
    degraded: tuple[str, ...]


class LittleWeb:
    """Pages and a search engine over them: words weighed by rarity (BM25), no meaning."""

    def __init__(self, pages: Sequence[_Page]) -> None:
        self.pages = {page.id: page for page in pages}
        self._words = {page.id: Counter(terms(f"{page.title} {page.title} {page.text}", page.lang)) for page in pages}
        self._in_pages = Counter(word for words in self._words.values() for word in words)
        self._mean = sum(words.total() for words in self._words.values()) / len(pages)

    def search(self, query: str) -> list[_Page]:
        """The best pages first. A page is compared in its own language, as an engine would stem it."""
        asked = {language: set(terms(query, language)) for language in SPOKEN}
        scores = {page.id: self._score(self._words[page.id], asked[page.lang]) for page in self.pages.values()}
        best = sorted((key for key, score in scores.items() if score), key=lambda key: -scores[key])
        return [self.pages[key] for key in best[:_RESULTS]]

    def _score(self, words: Counter[str], asked: set[str]) -> float:
        longer = 1.2 * (0.25 + 0.75 * words.total() / self._mean)
        return sum(
            math.log(1 + len(self.pages) / self._in_pages[word]) * words[word] * 2.2 / (words[word] + longer)
            for word in asked
            if word in words
        )


@contextmanager
def serving(web: LittleWeb) -> Iterator[str]:
    """The address of the search engine; the pages are beside it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = urlsplit(self.path)
            name = address.path.removeprefix("/page/")
            if address.path == "/search":
                hits = web.search(parse_qs(address.query)["q"][0])
                self._send("application/json", json.dumps({"results": list(map(self._hit, hits))}))
            elif name in web.pages:
                self._send("text/html; charset=utf-8", _as_html(web.pages[name]))
            else:
                self.send_error(404)

        def _hit(self, page: _Page) -> Mapping[str, str]:
            url = f"http://{self.headers['Host']}/page/{page.id}"
            return {"url": url, "title": page.title, "content": page.text[:_SNIPPET_CHARS]}

        def _send(self, kind: str, body: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _as_html(page: _Page) -> str:
    title, text = html.escape(page.title), html.escape(page.text)
    return (
        f'<!doctype html><html lang="{page.lang}"><head><title>{title}</title></head><body>'
        "<nav><a href='/'>Home</a> <a href='/contact'>Contact</a></nav>"
        f"<main><article><h1>{title}</h1><p>{text}</p></article></main>"
        "<footer>All rights reserved. Cookies. Newsletter.</footer></body></html>"
    )


async def measure(web: LittleWeb, questions: Sequence[_Asked], base_url: str) -> list[Outcome]:
    """One question after the other through search, pages, choice and judge."""
    # All pages are on one host here, which in the real web they are not: no politeness between them.
    pages = PagesSettings(allow_hosts=("127.0.0.1",), per_host=8, delay_s=0.0)
    settings = WebSettings(provider=("searxng",), base_url=base_url)
    searching = open_web_search(settings)
    reader = open_page_reader(pages)
    embedder = open_embedder(EmbedSettings(), HomeSettings().data_dir)
    chat = open_chat(LlmSettings())
    judge = open_judge(JudgeSettings(), LlmSettings(), embedder, prompts=prompts)
    assert searching is not None
    try:
        outcomes = []
        for asked in questions:
            began = time.perf_counter()
            command = await search_web(
                _command(asked), web=searching, top_k=settings.top_k, reader=reader, embedder=embedder, chat=chat
            )
            seconds = time.perf_counter() - began
            decided = await grade(command, judge=judge, policy=GraderSettings().policy)
            query = next(iter(command.header.trail[-1].queries), "")
            outcomes.append(
                Outcome(
                    asked,
                    found=any(page.id in asked.web_gold for page in web.search(query)[:10]),
                    handed_over=_is_in(asked, command.passages),
                    in_evidence=_is_in(asked, [each.passage for each in decided.evidence]),
                    seconds=seconds,
                    degraded=decided.header.degraded,
                )
            )
        return outcomes
    finally:
        for opened in (searching, reader, judge, chat, embedder):
            if opened is not None:
                await opened.aclose()


def _command(asked: _Asked) -> SearchWeb:
    now = time.time()
    header = Header(job_id=asked.id, entry_id="1-0", submitted_at=now, deadline=now + 60, language=asked.lang)
    question = Question(question=asked.question)
    return SearchWeb(
        header=header, asked=question, route="factual", queries=(asked.question[:400],), verdict="incorrect"
    )


def _is_in(asked: _Asked, passages: Sequence[Passage]) -> bool:
    return any(passage.uri.rpartition("/")[2] in asked.web_gold for passage in passages)


def _row(name: str, outcomes: Sequence[Outcome]) -> str:
    def share(of: str) -> float:
        return sum(bool(getattr(each, of)) for each in outcomes) / len(outcomes)

    shares = f"{share('found'):>7.2f} {share('handed_over'):>8.2f} {share('in_evidence'):>8.2f}"
    return f"{name:<28} {len(outcomes):>4} {shares} {median(each.seconds for each in outcomes):>8.1f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--missed", action="store_true", help="list the questions whose passage was lost")
    told = parser.parse_args()
    pages = [page for folder in told.folders for _, page in json_lines(folder / "web_passages.jsonl.gz", _Page)]
    web = LittleWeb(pages)
    sets = {folder.name: _questions(folder / "dev" / "queries.jsonl") for folder in told.folders}
    with serving(web) as base_url:
        outcomes = asyncio.run(measure(web, [asked for each in sets.values() for asked in each], base_url))
    print(f"{f'{len(pages)} pages':<28}    n   found   handed evidence    median")
    for kind in dict.fromkeys(each.asked.kind for each in outcomes):
        print(_row(kind, [each for each in outcomes if each.asked.kind == kind]))
    print(_row("all", outcomes))
    for reason, times in Counter(reason for each in outcomes for reason in each.degraded).most_common():
        print(f"degraded {times} times: {reason}")
    for each in outcomes if told.missed else ():
        if not each.in_evidence:
            how_far = "handed over" if each.handed_over else "found" if each.found else "not found"
            print(f"{each.asked.id} {how_far}: {each.asked.question}")
    return 0 if sum(each.handed_over for each in outcomes) >= WANTED * len(outcomes) else 1


def _questions(path: Path) -> list[_Asked]:
    return [asked for _, asked in json_lines(path, _Asked) if asked.web_gold]


if __name__ == "__main__":
    sys.exit(main())
