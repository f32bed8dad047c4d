"""The guard: whatever an address looks like, and whatever its name resolves to, nothing that is not public connects."""

from __future__ import annotations

import datetime
import ipaddress
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from shared.clients.pages import PageRefused, PagesSettings, PageUnavailable, Reason
from shared.clients.pages.fetching import Fetcher
from shared.clients.pages.guard import is_public, target_of
from tests.support.mock_site import Internet, MockSite, Page

PUBLIC = "93.184.216.34"
SETTINGS = PagesSettings(robots=False, delay_s=0)
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody, and takes no time to load

# Spelled so that something somewhere takes them for a place inside.
HOSTILE: list[tuple[str, Reason]] = [
    ("http://127.0.0.1/", "private address"),
    ("http://127.0.0.1:443/", "private address"),
    ("https://127.255.255.254/", "private address"),
    ("http://0.0.0.0/", "private address"),
    ("http://0/", "private address"),
    ("http://10.0.0.1/", "private address"),
    ("http://172.16.0.1/", "private address"),
    ("http://172.31.255.255/", "private address"),
    ("http://192.168.1.1/", "private address"),
    ("http://100.64.0.1/", "private address"),
    ("http://100.100.100.200/latest/meta-data/", "private address"),
    ("http://169.254.169.254/latest/meta-data/", "private address"),
    ("http://168.63.129.16/metadata/", "private address"),
    ("http://192.0.0.192/opc/v1/instance/", "private address"),
    ("http://192.88.99.1/", "private address"),
    ("http://198.18.0.1/", "private address"),
    ("http://203.0.113.7/", "private address"),
    ("http://224.0.0.1/", "private address"),
    ("http://240.0.0.1/", "private address"),
    ("http://255.255.255.255/", "private address"),
    ("http://2130706433/", "private address"),
    ("http://3232235777/", "private address"),
    ("http://2852039166/", "private address"),
    ("http://017700000001/", "private address"),
    ("http://0177.0.0.1/", "address"),
    ("http://0300.0250.1.1/", "address"),
    ("http://127.0.00000.1/", "address"),
    ("http://0x7f000001/", "private address"),
    ("http://0x7F.0x0.0x0.0x1/", "private address"),
    ("http://0xA9FEA9FE/", "private address"),
    ("http://0x7f.1/", "private address"),
    ("http://127.1/", "private address"),
    ("http://127.0.1/", "private address"),
    ("http://10.1/", "private address"),
    ("http://192.168.257/", "private address"),
    ("http://127.0.0.1./", "private address"),
    ("http://127.0.0.1../", "address"),
    ("http://4294967296/", "address"),
    ("http://0x1ffffffff/", "address"),
    ("http://256.256.256.256/", "address"),
    ("http://127.0.0.1.1/", "address"),
    ("http://127。0。0。1/", "private address"),
    ("http://127．0．0．1/", "private address"),
    ("http://１２７.0.0.1/", "address"),
    ("http://①②⑦.⓪.⓪.①/", "address"),
    ("http://%31%32%37.0.0.1/", "address"),
    ("http://127.0.0.1%00.example.com/", "address"),
    ("http://127.0.0.1%2f@example.com/", "userinfo"),
    ("http://[::1]/", "private address"),
    ("http://[0:0:0:0:0:0:0:1]/", "private address"),
    ("http://[::]/", "private address"),
    ("http://[::127.0.0.1]/", "private address"),
    ("http://[::ffff:127.0.0.1]/", "private address"),
    ("http://[::ffff:a9fe:a9fe]/", "private address"),
    ("http://[0:0:0:0:0:ffff:10.0.0.1]/", "private address"),
    ("http://[::ffff:0:127.0.0.1]/", "private address"),
    ("http://[64:ff9b::10.0.0.1]/", "private address"),
    ("http://[64:ff9b:1::8.8.8.8]/", "private address"),
    ("http://[2002:7f00:1::]/", "private address"),
    ("http://[2002:808:808::]/", "private address"),
    ("http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/", "private address"),
    ("http://[fe80::1]/", "private address"),
    ("http://[fe80::1%25eth0]/", "private address"),
    ("http://[2606:4700::1%25eth0]/", "private address"),
    ("http://[fc00::1]/", "private address"),
    ("http://[fd00:ec2::254]/latest/meta-data/", "private address"),
    ("http://[fec0::1]/", "private address"),
    ("http://[ff02::1]/", "private address"),
    ("http://[100::1]/", "private address"),
    ("http://[2001:db8::1]/", "private address"),
    ("http://[3fff::1]/", "private address"),
    ("http://[5f00::1]/", "private address"),
    ("http://[::1/", "address"),
    ("http://::1/", "address"),
    ("http://user@example.com/", "userinfo"),
    ("http://user:secret@example.com/", "userinfo"),
    ("http://example.com@127.0.0.1/", "userinfo"),
    ("http://example.com:80@127.0.0.1/", "userinfo"),
    ("http://127.0.0.1:80\\@example.com/", "address"),
    ("http://example.com\\@127.0.0.1/", "address"),
    ("http:\\\\127.0.0.1\\", "address"),
    ("http://example.com:22/", "port"),
    ("http://example.com:6379/", "port"),
    ("http://example.com:0/", "port"),
    ("https://example.com:8443/", "port"),
    ("http://example.com:65616/", "port"),
    ("http://example.com:80:6379/", "address"),
    ("http://example.com:-1/", "port"),
    ("http://example.com/\r\nHost: 127.0.0.1", "address"),
    ("http://exa\tmple.com/", "address"),
    ("http://exa mple.com/", "address"),
    ("http:///etc/passwd", "address"),
    ("http:127.0.0.1", "address"),
    ("http://./", "address"),
    ("http://example..com/", "address"),
    (f"http://{'a' * 64}.com/", "address"),
    (f"http://{'a.' * 130}com/", "address"),
    (f"http://example.com/{'a' * 5_000}", "address"),
    ("http://example.com/\ud800", "address"),
    ("http://exam\u200bple.com/", "address"),
    ("http://exam\u202eple.com/", "address"),
    ("file:///etc/passwd", "scheme"),
    ("ftp://example.com/", "scheme"),
    ("gopher://127.0.0.1:6379/_INFO", "scheme"),
    ("dict://127.0.0.1:6379/INFO", "scheme"),
    ("ldap://127.0.0.1/", "scheme"),
    ("ws://example.com/", "scheme"),
    ("data:text/html,secret", "scheme"),
    ("javascript:alert(1)", "scheme"),
    ("jar:http://127.0.0.1!/", "scheme"),
    ("//127.0.0.1/", "scheme"),
    ("127.0.0.1", "scheme"),
    ("", "scheme"),
]

# Names, and what their name server says.
LYING_NAMES: dict[str, list[str]] = {
    "localhost": ["127.0.0.1"],
    "metadata.google.internal": ["169.254.169.254"],
    "127.0.0.1.nip.test": ["127.0.0.1"],
    "six.test": ["::1"],
    "mapped.test": ["::ffff:10.0.0.1"],
    "zone.test": ["fe80::1%eth0"],
    "six-to-four.test": ["2002:7f00:1::"],
    "both.test": [PUBLIC, "10.0.0.1"],
    "both-turned.test": ["10.0.0.1", PUBLIC],
    "no-number.test": ["127.1"],
    "xn--lcalhost-nbh.test": ["127.0.0.1"],
    "xn--lcalhost-54f.test": ["127.0.0.1"],  # no punycode
}
NAMED: list[str] = [
    *(f"http://{name}/" for name in LYING_NAMES),
    "https://localhost/",
    "http://LOCALHOST/",
    "http://localhost./",
    "http://lоcalhost.test/",  # its first o is Cyrillic
]


def internet(site: MockSite, **more: list[list[str]]) -> Internet:
    known: Mapping[str, list[list[str]]] = {name: [numbers] for name, numbers in LYING_NAMES.items()}
    return Internet(site, {**known, "start.test": [[PUBLIC]], **{k.replace("_", "."): v for k, v in more.items()}})


@pytest.fixture
async def site() -> AsyncIterator[MockSite]:
    async with MockSite() as running:
        yield running


async def refused(address: str, net: Internet, settings: PagesSettings = SETTINGS) -> PageRefused:
    fetcher = Fetcher(settings, resolve=net.resolve, network=net, tls=TLS)
    with pytest.raises(PageRefused) as caught:
        await fetcher.fetch(address)
    await fetcher.aclose()
    assert caught.value.told
    str(caught.value).encode()  # it is logged
    return caught.value


@pytest.mark.parametrize(("address", "reason"), HOSTILE)
async def test_a_hostile_address_connects_to_nothing(site: MockSite, address: str, reason: Reason) -> None:
    net = internet(site)
    assert (await refused(address, net)).reason == reason
    assert (net.connected, net.resolved, site.connections) == ([], [], 0)


@pytest.mark.parametrize("address", NAMED)
async def test_a_name_of_a_private_number_connects_to_nothing(site: MockSite, address: str) -> None:
    net = internet(site)
    assert (await refused(address, net)).reason == "private address"
    assert (net.connected, len(net.resolved), site.connections) == ([], 1, 0)


@pytest.mark.parametrize("status", [301, 303, 307, 308])
async def test_a_redirect_by_any_status_is_checked(site: MockSite, status: int) -> None:
    site.pages["/go"] = Page.leading_to("http://127.0.0.1/", status=status)
    net = internet(site)
    assert (await refused("http://start.test/go", net)).reason == "private address"
    assert (net.connected, site.connections) == ([(PUBLIC, 80)], 1)


@pytest.mark.parametrize(
    ("address", "reason"),
    [each for each in HOSTILE if each[0].isascii() and each[0].isprintable() and re.match("[^/]*//[^/]", each[0])],
)
async def test_a_redirect_to_a_hostile_address_is_not_followed(site: MockSite, address: str, reason: Reason) -> None:
    site.pages["/go"] = Page.leading_to(address)
    net = internet(site)
    found = (await refused("http://start.test/go", net)).reason
    # Beside a base, //host has a scheme.
    assert found == ("private address" if address.startswith("//") else reason)
    assert (net.connected, site.connections) == ([(PUBLIC, 80)], 1)


@pytest.mark.parametrize("address", [each for each in NAMED if each.isascii()])
async def test_a_redirect_to_a_private_name_is_not_followed(site: MockSite, address: str) -> None:
    site.pages["/go"] = Page.leading_to("/on")
    site.pages["/on"] = Page.leading_to(address)
    net = internet(site)
    assert (await refused("http://start.test/go", net)).reason == "private address"
    assert {number for number, _ in net.connected} == {PUBLIC}


async def test_a_name_is_asked_once_and_its_second_answer_never_used(site: MockSite) -> None:
    site.pages["/en"] = Page(b"seen", headers={"Connection": "close"})
    net = internet(site, rebind_test=[[PUBLIC], ["127.0.0.1"]])
    fetcher = Fetcher(SETTINGS, resolve=net.resolve, network=net, tls=TLS)
    assert (await fetcher.fetch("http://rebind.test/en")).body == b"seen"
    assert (net.resolved, net.connected) == (["rebind.test"], [(PUBLIC, 80)])
    with pytest.raises(PageRefused, match="private address"):
        await fetcher.fetch("http://rebind.test/en")
    assert net.connected == [(PUBLIC, 80)]
    await fetcher.aclose()


async def test_a_robots_txt_may_not_lead_inside(site: MockSite) -> None:
    site.pages["/robots.txt"] = Page.leading_to("http://localhost/")
    net = internet(site)
    assert (await refused("http://start.test/en", net, PagesSettings(delay_s=0))).reason == "robots"
    assert {number for number, _ in net.connected} == {PUBLIC}
    assert set(site.asked) == {"/robots.txt"}


async def test_a_host_that_is_allowed_may_be_anywhere(site: MockSite) -> None:
    settings = PagesSettings(robots=False, allow_hosts=("Wiki.Internal.", "[::1]", "127.0.0.1"))
    net = internet(site, wiki_internal=[["10.0.0.7"]])
    fetcher = Fetcher(settings, resolve=net.resolve, network=net, tls=TLS)
    for address in ("http://wiki.internal:8080/en", "http://WIKI.internal.:8080/en", "http://2130706433:99/en"):
        assert (await fetcher.fetch(address)).body
    await fetcher.aclose()
    assert net.connected == [("10.0.0.7", 8080), ("127.0.0.1", 99)]
    assert (await refused("http://10.0.0.7/", net, settings)).reason == "private address"
    assert (await refused("http://wiki.internal:65616/", net, settings)).reason == "port"


async def test_a_public_page_may_not_lead_to_an_allowed_host(site: MockSite) -> None:
    site.pages["/go"] = Page.leading_to("http://wiki.internal/delete?page=1")
    net = internet(site, wiki_internal=[["10.0.0.7"]])
    settings = PagesSettings(robots=False, allow_hosts=("wiki.internal",))
    assert (await refused("http://start.test/go", net, settings)).reason == "private address"
    assert net.connected == [(PUBLIC, 80)]


async def test_the_next_number_of_a_name_is_tried(site: MockSite) -> None:
    net = Internet(site, {"two.test": [["8.8.8.8", PUBLIC]]}, dead=["8.8.8.8"])
    fetcher = Fetcher(SETTINGS, resolve=net.resolve, network=net, tls=TLS)
    assert (await fetcher.fetch("http://two.test/en")).body
    assert net.connected == [("8.8.8.8", 80), (PUBLIC, 80)]
    with pytest.raises(PageUnavailable, match="unheard"):
        await fetcher.fetch("http://unheard.test/")
    await fetcher.aclose()


async def test_the_systems_own_resolver_is_checked_too() -> None:
    fetcher = Fetcher(SETTINGS)
    with pytest.raises(PageRefused, match="private address: localhost"):
        await fetcher.fetch("http://localhost/")
    await fetcher.aclose()


def certificate(name: str, directory: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + signed.public_bytes(serialization.Encoding.PEM)
    path = directory / f"{name}.pem"
    path.write_bytes(pem)
    return path


async def test_name_and_certificate_stay_the_addresses_own(tmp_path: Path) -> None:
    pem = certificate("start.test", tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem)
    named: list[str | None] = []
    tls.set_servername_callback(lambda _socket, name, _context: named.append(name))
    trusting = ssl.create_default_context(cafile=pem)
    async with MockSite(tls=tls) as site:
        net = internet(site, other_test=[[PUBLIC]])
        fetcher = Fetcher(SETTINGS, resolve=net.resolve, network=net, tls=trusting)
        assert (await fetcher.fetch("https://start.test/en")).body
        assert (net.connected, named) == ([(PUBLIC, 443)], ["start.test"])
        assert site.headers[0]["host"] == "start.test"
        with pytest.raises(PageUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await fetcher.fetch("https://other.test/en")
        await fetcher.aclose()


@pytest.mark.parametrize(
    ("address", "canonical"),
    [
        ("HTTP://Example.COM:80/a/../b?q=1#part", "http://example.com/b?q=1"),
        ("http://example.com.", "http://example.com"),
        ("http://президент.рф/путь", "http://xn--d1abbgf6aiiy.xn--p1ai/%D0%BF%D1%83%D1%82%D1%8C"),
        ("http://еxample.com/", "http://xn--xample-2of.com/"),  # its e is Cyrillic: nobody takes it for the other
        ("http://134744072/", "http://8.8.8.8/"),
        ("http://[2606:4700:0::1111]:443/", "http://[2606:4700:0::1111]:443/"),
        ("http://[64:ff9b::8.8.8.8]/", "http://[64:ff9b::8.8.8.8]/"),
        ("http://example.com?@127.0.0.1/", "http://example.com?@127.0.0.1/"),
        ("http://example.com#@127.0.0.1/", "http://example.com"),
    ],
)
def test_a_public_address_has_one_spelling(address: str, canonical: str) -> None:
    assert str(target_of(address, SETTINGS)) == canonical


# --- any private number, however it is written ------------------------------------------------------------------

PRIVATE_V4 = st.one_of(
    *(
        st.integers(int(net[0]), int(net[-1])).map(ipaddress.IPv4Address)
        for net in map(
            ipaddress.IPv4Network,
            [
                *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
                *("192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"),
            ],
        )
    )
)
RADIX = st.sampled_from(["{:d}", "0x{:x}", "0X{:X}", "0{:o}", "0x000{:x}"])


@st.composite
def spelled(draw: st.DrawFn) -> str:
    """A private IPv4 address as some program reads it: in fewer parts, other radices, or inside an IPv6 one."""
    number = int(draw(PRIVATE_V4))
    if draw(st.booleans()):
        six = draw(
            st.sampled_from(
                [
                    (0xFFFF << 32) | number,
                    number,
                    (0x64FF9B << 96) | number,
                    (0x2002 << 112) | (number << 80) | draw(st.integers(0, 2**80 - 1)),
                    (0x20010000 << 96) | draw(st.integers(0, 2**96 - 1)),
                ]
            )
        )
        written = ipaddress.IPv6Address(six)
        return f"[{draw(st.sampled_from([written.compressed, written.exploded, written.exploded.upper()]))}]"
    parts = draw(st.integers(1, 4))
    pieces = [(number >> (24 - 8 * place)) & 0xFF for place in range(parts - 1)]
    pieces.append(number & (2 ** (8 * (5 - parts)) - 1))
    dot = draw(st.sampled_from([".", "。", "．", "｡"]))
    return dot.join(draw(RADIX).format(piece) for piece in pieces) + draw(st.sampled_from(["", "."]))


@given(spelled(), st.sampled_from(["http", "https", "HTTP"]), st.sampled_from(["", ":80", ":443"]))
def test_no_spelling_of_a_private_number_gets_through(host: str, scheme: str, port: str) -> None:
    with pytest.raises(PageRefused) as caught:
        target_of(f"{scheme}://{host}{port}/", SETTINGS)
    assert caught.value.reason in ("private address", "address")


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6), PRIVATE_V4))
def test_what_python_takes_for_special_is_never_public(number: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    special = number.is_private or number.is_multicast or number.is_reserved or number.is_link_local
    if isinstance(number, ipaddress.IPv6Address):
        inner = number.sixtofour or number.teredo
        special = special or inner is not None or number.is_site_local
        if number in ipaddress.IPv6Network("64:ff9b::/96") or number.ipv4_mapped:
            return
    assert not (special and is_public(str(number)))


@given(st.text())
def test_any_text_is_a_public_address_or_refused(text: str) -> None:
    for address in (text, f"http://{text}", f"http://{text}.test/", f"http://a.test/{text}"):
        try:
            url = target_of(address, SETTINGS)
        except PageRefused:
            continue
        assert url.scheme in ("http", "https")
        assert url.raw_host.decode("ascii")


@pytest.mark.parametrize("number", ["8.8.8.8", PUBLIC, "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1"])
def test_public_numbers_are_public(number: str) -> None:
    assert is_public(number)
