"""Where calls may go: the allow-list, and the addresses behind its names."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from raptor.address import Allowed, is_public, read_allowed, read_network, read_origin, read_url, unwrapped
from raptor.errors import BadInput

REFUSED = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "100.64.0.1", "169.254.169.254", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.9",
    "192.88.99.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::10.0.0.1",
    "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1", "2001::1", "2001:db8::1", "100::1", "fc00::1", "fd12:3456::1",
    "fe80::1", "fe80::1%lo", "fec0::1", "ff02::1", "4000::1",
]  # fmt: skip
PUBLIC = [
    "8.8.8.8", "93.184.216.34", "172.32.0.1", "2606:2800:220:1::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8",
    "2002:808:808::1",
]  # fmt: skip


@pytest.mark.spec("001-64")
@pytest.mark.parametrize("address", REFUSED)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    allowed = read_allowed(["https://api.example.com"], [])
    with pytest.raises(BadInput, match=r"api.example.com leads to .*, which is not a public address"):
        allowed.check_address(allowed.origins[0], ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_admitted(address: str) -> None:
    allowed = read_allowed(["https://api.example.com"], [])
    allowed.check_address(allowed.origins[0], ip_address(address))
    assert is_public(unwrapped(ip_address(address)))


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3", "fd00::5"])
def test_a_network_that_is_named_admits_its_addresses(address: str) -> None:
    allowed = read_allowed(["http://inside.example"], ["10.0.0.0/8", "fd00::/64"])
    allowed.check_address(allowed.origins[0], ip_address(address))


def test_a_refused_address_comes_with_the_line_that_admits_it() -> None:
    origin = read_origin("http://h.example")
    with pytest.raises(BadInput) as caught:
        Allowed().check_address(origin, ip_address("::ffff:192.168.0.1"))
    assert 'under [http], networks = ["192.168.0.1/32"]' in str(caught.value)
    read_allowed([], ["192.168.0.1/32"]).check_address(origin, ip_address("::ffff:192.168.0.1"))


@pytest.mark.parametrize(
    ("entry", "address", "admitted"),
    [
        ("http://127.0.0.1", "127.0.0.1", True),
        ("http://127.0.0.1", "127.0.0.2", False),
        ("http://[::1]", "::1", True),
        ("http://10.0.0.5", "10.0.0.5", True),
        ("http://localhost", "127.0.0.1", True),
        ("http://localhost", "::1", True),
        ("http://localhost", "10.0.0.5", False),
        ("http://localhost.example.com", "127.0.0.1", False),
    ],
)
def test_an_entry_that_names_the_address_admits_it(entry: str, address: str, admitted: bool) -> None:
    allowed = read_allowed([entry], [])
    if admitted:
        allowed.check_address(allowed.origins[0], ip_address(address))
    else:
        with pytest.raises(BadInput):
            allowed.check_address(allowed.origins[0], ip_address(address))


@pytest.mark.spec("001-64")
@pytest.mark.parametrize(
    ("entry", "url", "allowed"),
    [
        ("https://api.example.com", "https://api.example.com/a?b", True),
        ("https://api.example.com", "https://API.EXAMPLE.com:443/", True),
        ("https://api.example.com/", "https://api.example.com", True),
        ("https://api.example.com", "http://api.example.com/", False),
        ("https://api.example.com", "https://api.example.com:8443/", False),
        ("https://api.example.com", "https://api.example.com.evil.example/", False),
        ("https://api.example.com", "https://evil.example/?https://api.example.com", False),
        ("https://api.example.com", "https://xapi.example.com/", False),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/", True),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8081/", False),
        ("http://127.0.0.1:8080", "http://[::ffff:127.0.0.1]:8080/", False),
        ("http://[::1]:80", "http://[0:0:0:0:0:0:0:1]/", True),
        ("https://*.example.com", "https://a.example.com/", True),
        ("https://*.example.com", "https://a.b.example.com/", True),
        ("https://*.example.com", "https://example.com/", False),
        ("https://*.example.com", "https://badexample.com/", False),
        ("https://*.example.com:8443", "https://a.example.com/", False),
        ("http://*.0.0.1", "http://127.0.0.1/", False),
    ],
)
def test_scheme_host_and_port_must_match(entry: str, url: str, allowed: bool) -> None:
    listed = Allowed((read_origin(entry),))
    if allowed:
        listed.check(read_url(url))
    else:
        with pytest.raises(BadInput, match="is not allowed"):
            listed.check(read_url(url))


@pytest.mark.spec("001-64")
def test_nothing_is_allowed_by_default_and_the_error_gives_the_line() -> None:
    with pytest.raises(BadInput) as caught:
        Allowed().check(read_url("https://a.example/x?token=1"))
    line = 'write into raptor.toml, under [http], allow = ["https://a.example"]'
    assert str(caught.value) == f"https://a.example is not allowed: {line}"
    with pytest.raises(BadInput, match=r'allow = \["https://a.example", "http://b.example:8080"\]'):
        read_allowed(["https://a.example"], []).check(read_url("http://b.example:8080/"))


@pytest.mark.parametrize(
    "url",
    [
        None, 5, "", "example.com", "//example.com/", "ftp://example.com/", "file:///etc/passwd", "javascript:alert(1)",
        "http://", "http:///x", "http://user@example.com/", "http://user:secret@example.com/", "http://@example.com/",
        "http://example.com:0/", "http://example.com:99999/", "http://example.com:x/", "http://exa mple.com/",
        "http://example.com/a b", "http://example.com/\r\nX: y", "http://example.com/\x00", "http://example.com\\@evil/",
        "http://éxample.com/", "http://example.com/é", "http://[::1/", "http://[fe80::1%25lo]/", "http://[127.0.0.1]/",
        "http://-a.example/", "http://a..example/", "http://a.example./", "http://a%2eexample/", "http://a_b;c/",
        "http://" + "a" * 64 + ".example/", "http://a.example/" + "b" * 9000, " http://a.example/", "http://a.example/\t",
    ],
)  # fmt: skip
def test_what_is_no_plain_url_is_refused_without_its_secrets(url: object) -> None:
    with pytest.raises(BadInput) as caught:
        read_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "entry",
    [
        "", "example.com", "https://example.com/path", "https://example.com?x", "https://example.com#x", "https://*",
        "https://*.", "https://*.*.example.com", "https://a.*.example.com", "https://*.127.0.0.1", "*.example.com",
        "ftp://example.com", "https://u:p@example.com", 5,
    ],
)  # fmt: skip
def test_what_is_no_origin_is_refused_in_the_allow_list(entry: object) -> None:
    with pytest.raises(BadInput, match="an origin such as"):
        read_origin(entry)


@pytest.mark.parametrize("network", ["", "10.0.0.1/8", "10.0.0.0/33", "example.com", 5])
def test_what_is_no_network_is_refused(network: object) -> None:
    with pytest.raises(BadInput, match="a network such as"):
        read_network(network)
