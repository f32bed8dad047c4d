"""/metrics and /healthz, served from a thread of their own so that they answer, truthfully, when the loop hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import make_wsgi_app

from shared.runtime.metrics import HEALTHY
from shared.settings import ObserveSettings

STALLED_AFTER_S = 10.0
"""An event loop without a beat, or an inbox not looked at in spite of free slots, for this long is unhealthy."""


class Pulse:
    """Whether this worker does its part: a live process alone proves nothing.

    A Redis that is away is not the worker's fault, and restarting it would not help: then it tries on, and is well.
    """

    def __init__(self, unread_s: Callable[[], float]) -> None:
        self._unread_s = unread_s
        self._beat_at = time.monotonic()

    def beat(self) -> None:
        """Called on the event loop."""
        self._beat_at = time.monotonic()

    def complaint(self) -> str:
        """What is wrong, or the empty string."""
        if (silent_s := time.monotonic() - self._beat_at) > STALLED_AFTER_S:
            return f"the event loop has not run for {silent_s:.0f} s"
        if (unread_s := self._unread_s()) > STALLED_AFTER_S:
            return f"no look at the inbox for {unread_s:.0f} s"
        return ""


class _Server(ThreadingMixIn, WSGIServer):
    """A client that says nothing must hold up neither the others nor the end of the process."""

    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    timeout = 5

    def log_message(self, format: str, *args: object) -> None:
        """A scrape every few seconds is no news."""


@contextmanager
def serve_metrics(settings: ObserveSettings, pulse: Pulse) -> Iterator[int]:
    """Serve while the body runs; yields the port, 0 when none is set."""
    if settings.metrics_port == 0:
        yield 0
        return
    metrics = make_wsgi_app()
    HEALTHY.set_function(lambda: float(not pulse.complaint()))

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/healthz":
            answer: Iterable[bytes] = metrics(environ, start_response)
            return answer
        complaint = pulse.complaint()
        status = "503 Service Unavailable" if complaint else "200 OK"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [(complaint or "ok").encode()]

    server = make_server(settings.metrics_host, settings.metrics_port, app, _Server, _QuietHandler)
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
