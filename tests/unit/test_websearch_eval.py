"""The little web that `python -m evals.web` measures on: what its engine finds, and that it speaks SearXNG's API."""

from __future__ import annotations

import httpx

from evals.web import LittleWeb, Outcome, _Asked, _Page, _row, serving

WEB = LittleWeb(
    [
        _Page(id="p1", title="Tents", text="A tent may be returned within thirty days.", lang="en"),
        _Page(id="p2", title="Sacs & duvets", text="Un duvet se rend sous trente jours.", lang="fr"),
        _Page(id="p3", title="Boots", text="Boots may be returned within thirty days. " * 3, lang="en"),
    ]
)


def test_the_engine_puts_what_has_the_rare_words_first_and_leaves_out_what_has_none() -> None:
    assert [page.id for page in WEB.search("tent returned days")] == ["p1", "p3"]
    assert [page.id for page in WEB.search("sacs")] == ["p2"]
    assert WEB.search("kayak") == []


async def test_it_is_served_as_searxng_and_pages() -> None:
    with serving(WEB) as base_url:
        async with httpx.AsyncClient(base_url=base_url) as client:
            found = (await client.get("/search", params={"q": "duvet sacs", "format": "json"})).json()
            page = await client.get(found["results"][0]["url"])
            lost = await client.get("/page/none")
    assert (found["results"][0]["title"], lost.status_code) == ("Sacs & duvets", 404)
    assert "<title>Sacs &amp; duvets</title>" in page.text
    assert 'lang="fr"' in page.text


def test_a_row_tells_shares_and_the_median() -> None:
    asked = _Asked(id="q", question="Why?", lang="en", kind="k", web_gold=("p1",))
    outcomes = [
        Outcome(asked, found=True, handed_over=True, in_evidence=False, seconds=1.0, degraded=()),
        Outcome(asked, found=True, handed_over=False, in_evidence=False, seconds=3.0, degraded=()),
    ]
    assert _row("k", outcomes).split() == ["k", "2", "1.00", "0.50", "0.00", "2.0", "s"]
