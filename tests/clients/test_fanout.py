"""Grading ten passages takes about as long as one: the calls run at the same time.

Other work on the machine only ever adds time, so the fastest of several is compared; bench/fanout.py has the medians.
"""

from __future__ import annotations

from bench.fanout import mock_process, ratios


async def test_ten_passages_take_less_than_a_quarter_longer_than_one() -> None:
    with mock_process(latency_ms=500) as base_url:
        _, found = await ratios(base_url, concurrency=10, sizes=(10,), times=5, typical=min)
    assert found[10] < 1.25


async def test_a_smaller_bound_takes_as_many_rounds_as_it_must() -> None:
    with mock_process(latency_ms=300) as base_url:
        _, found = await ratios(base_url, concurrency=5, sizes=(10,), times=3, typical=min)
    assert 1.9 < found[10] < 2.6
