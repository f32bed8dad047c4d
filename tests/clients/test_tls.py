"""Endpoints over HTTPS: a private CA is named by SSL_CERT_FILE, and nobody else is trusted."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import trustme
from pydantic import SecretStr

from shared.clients.http import JsonService
from shared.clients.status import Endpoint
from shared.errors import Misconfigured

CA = trustme.CA()


class Echo(BaseHTTPRequestHandler):
    """Answers with the key it was sent."""

    def do_POST(self) -> None:
        body = json.dumps(self.headers["Authorization"]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    CA.issue_cert("localhost").configure_cert(context)
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        # Handshakes in the connection's own thread: a client that hangs up in one must not end the server.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


async def post(port: int, host: str = "localhost") -> object:
    endpoint = Endpoint(f"https://{host}:{port}/v1", "CAIRN_LLM", SecretStr("hunter2"))
    service = JsonService(endpoint, concurrency=1, timeout_s=10)
    try:
        return await service.post("chat/completions", {}, timeout_s=10)
    finally:
        await service.aclose()


async def test_a_private_ca_is_trusted_where_the_environment_names_it(
    port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    CA.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    assert await post(port) == "Bearer hunter2"
    with pytest.raises(Misconfigured, match=r"CAIRN_LLM_BASE_URL: 127\.0\.0\.1's certificate"):
        await post(port, "127.0.0.1")


async def test_an_unknown_ca_is_a_setting_to_change_and_gets_no_key(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(Misconfigured, match=r"CAIRN_LLM_BASE_URL: localhost's certificate.*verify failed"):
        await post(port)
