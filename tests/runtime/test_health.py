"""/metrics and /healthz of a worker."""

from __future__ import annotations

import asyncio
import socket

import httpx
from redis.asyncio import Redis

from shared.runtime.health import Pulse, serve_metrics
from shared.runtime.keys import Keys
from shared.settings import ObserveSettings
from tests.support.bus import ask, outcome, pipeline, running
from tests.support.wait import wait_until


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def fetch(port: int, path: str) -> httpx.Response:
    async with httpx.AsyncClient() as http:
        return await http.get(f"http://127.0.0.1:{port}{path}")


async def test_a_worker_that_reads_its_inbox_is_well(redis: Redis, keys: Keys, redis_url: str) -> None:
    settings = ObserveSettings(metrics_port=free_port())
    async with running(pipeline(), redis_url, keys) as workers:
        with serve_metrics(settings, workers[0].pulse) as port:
            await ask(redis, keys, job_id="j")
            await wait_until(lambda: outcome(redis, keys, "j"))
            health, metrics = await asyncio.gather(fetch(port, "/healthz"), fetch(port, "/metrics"))
    assert (health.status_code, health.text) == (200, "ok")
    for line in (
        'cairn_deliveries_total{outcome="done",stage="gateway"}',
        'cairn_deliveries_total{outcome="answered",stage="generator"}',
        'cairn_stage_seconds_count{stage="grader"}',
        'cairn_queue_wait_seconds_count{stage="grader"}',
        'cairn_job_seconds_count{status="answered"}',
        'cairn_stream_waiting{stage="rewriter"}',
        'cairn_stream_pending{stage="rewriter"}',
    ):
        assert line in metrics.text


async def test_a_worker_that_reads_nothing_is_not() -> None:
    unread = Pulse(lambda: 99.0)
    with serve_metrics(ObserveSettings(metrics_port=free_port()), unread) as port:
        health = await fetch(port, "/healthz")
    assert (health.status_code, health.text) == (503, "no look at the inbox for 99 s")


async def test_a_silent_client_holds_up_nobody() -> None:
    pulse = Pulse(lambda: 0.0)
    with (
        serve_metrics(ObserveSettings(metrics_port=free_port()), pulse) as port,
        socket.create_connection(("127.0.0.1", port)),
    ):
        assert (await fetch(port, "/healthz")).status_code == 200


def test_a_loop_that_hangs_is_not_well() -> None:
    pulse = Pulse(lambda: 0.0)
    pulse._beat_at -= 60
    assert pulse.complaint() == "the event loop has not run for 60 s"
