"""Where a fetch may go: addresses read one way only, and connections to nothing but what was checked.

`target_of` judges an address by its letters, `GuardedNetwork` by what its host resolves to at the moment of connecting.
It connects to the very number that it checked, so no second answer of the name server counts; name, certificate and
Host stay those of the address, because the HTTP client above never learns the number.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

import httpcore
import httpx

from shared.clients.pages.model import PageRefused
from shared.clients.pages.settings import PagesSettings

Resolve = Callable[[str], Awaitable[list[str]]]
"""IP addresses of a host, best first. Raises OSError where there are none."""

# IANA's special-purpose registries, written down: `ipaddress.is_global` answers by the version of Python, and takes
# multicast, 6to4 and some clouds' metadata for the open internet.
_CLOSED_V4: Final = tuple(
    IPv4Network(net)
    for net in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
        "168.63.129.16/32",  # Azure's own services, at a number that looks public
    )
)
_OPEN_V6: Final = IPv6Network("2000::/3")
"""What IANA gives out; all else is local, mapped, multicast or reserved."""
_CLOSED_V6: Final = tuple(  # Teredo is in the first, 6to4 the third
    IPv6Network(net) for net in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
)
_CARRIES_V4: Final = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
"""IPv4-mapped, and NAT64, by which IPv6-only networks reach the rest: as good as the IPv4 address within."""
_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\Z")
_MAX_CHARS: Final = 4_000
"""Of an address; longer ones are refused."""
_RESOLVERS: Final = 8
"""Lookups at once: a name server that never answers holds its thread for as long as the system lets it."""
_TRY_S: Final = 2.0
"""Longest wait for one of several addresses of a host."""


def is_public(address: str) -> bool:
    """Whether a number is one of the open internet's. False for what isn't one."""
    try:
        number: IPv4Address | IPv6Address = ip_address(address)
    except ValueError:
        return False
    if isinstance(number, IPv6Address):
        if number.scope_id is not None:
            return False
        if not any(number in net for net in _CARRIES_V4):
            return number in _OPEN_V6 and not any(number in net for net in _CLOSED_V6)
        number = IPv4Address(number.packed[-4:])
    return not any(number in net for net in _CLOSED_V4)


def target_of(address: str, settings: PagesSettings, *, base: httpx.URL | None = None) -> httpx.URL:
    """The address in its one spelling (punycode, dotted IPv4, no trailing dot, no fragment). Raises PageRefused.

    `base` is the page that leads to it.
    """
    told = f"{address[:200]!a}"
    if "\\" in address or len(address) > _MAX_CHARS:  # a backslash is a slash to browsers, a letter to others
        raise PageRefused("address", f"{told} has a backslash, or more than {_MAX_CHARS} characters")
    try:
        url = httpx.URL(address) if base is None else base.join(address)
    except (httpx.InvalidURL, ValueError) as error:
        raise PageRefused("address", f"{told} can't be read") from error
    if url.scheme not in ("http", "https"):
        raise PageRefused("scheme", f"{told} is not of http or https")
    if url.userinfo:
        raise PageRefused("userinfo", f"{told} has a name or password")
    host, port = _one_spelling(host_of(url)), port_of(url)
    is_allowed = host in settings.allow_hosts
    if not (0 < port < 65_536) or (port not in settings.ports and not is_allowed):
        raise PageRefused("port", f"{host}:{port} (CAIRN_PAGES_PORTS)")
    if _is_number(host) and not is_public(host) and not is_allowed:
        raise PageRefused("private address", f"{host} (CAIRN_PAGES_ALLOW_HOSTS)")
    return url.copy_with(host=host, fragment=None)


def host_of(url: httpx.URL) -> str:
    """In punycode; `url.host` decodes it, and raises on what isn't any."""
    return url.raw_host.decode("ascii")


def port_of(url: httpx.URL) -> int:
    return url.port if url.port is not None else 443 if url.scheme == "https" else 80


def _one_spelling(host: str) -> str:
    """`127.1`, `0x7f.1` and `2130706433` are 127.0.0.1 to the system's resolver, so they are here."""
    if ":" in host:
        return host
    name = host.removesuffix(".")
    if not _NAME.match(name):
        raise PageRefused("address", f"{host[:200]!r} is no host")
    last = name.rpartition(".")[2]
    if not (last.isdigit() or last.startswith("0x")):
        return name
    try:
        return socket.inet_ntoa(socket.inet_aton(name))
    except OSError as error:
        raise PageRefused("address", f"{host!r} is no host") from error


def _is_number(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """The network, as far as it is public; hosts that the settings name are reached wherever they are."""

    def __init__(
        self, settings: PagesSettings, *, resolve: Resolve | None = None, network: httpcore.AsyncNetworkBackend
    ) -> None:
        self._allowed = settings.allow_hosts
        self._threads = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="resolve")
        self._resolve = resolve or self._ask_system
        self._network = network

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Raises PageRefused if any of the host's addresses is not public: one that is would be a decoy."""
        try:
            numbers = [host] if _is_number(host) else await self._resolve(host)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host} is not known ({error})") from error
        if host not in self._allowed and (closed := [number for number in numbers if not is_public(number)]):
            raise PageRefused("private address", f"{host} is {closed[0]} (CAIRN_PAGES_ALLOW_HOSTS)")
        for number in numbers[:-1]:
            try:
                return await self._network.connect_tcp(number, port, _TRY_S, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._network.connect_tcp(numbers[-1], port, timeout, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask_system(self, host: str) -> list[str]:
        def ask() -> list[str]:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            # IPv4 first: where IPv6 leads nowhere, a container's network often says so by silence.
            ordered = sorted(found, key=lambda each: each[0] != socket.AF_INET)
            return list(dict.fromkeys(str(each[4][0]) for each in ordered))

        return await asyncio.get_running_loop().run_in_executor(self._threads, ask)
