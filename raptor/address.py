"""Where an HTTP call may go: URLs, the origins of the allow-list, and the addresses that a name may lead to.

Nothing here resolves a name or opens a connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from raptor.errors import BadInput

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

PORTS: Final = {"http": 80, "https": 443}
LONGEST: Final = 8192  # characters of a URL

_VISIBLE: Final = re.compile(r"[!-\[\]-~]+")  # printable ASCII, without space and backslash
_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
)
_NAT64: Final = ip_network("64:ff9b::/96")
_GLOBAL_6: Final = ip_network("2000::/3")
# Not for the public, though older Pythons call them global.
_SPECIAL: Final = (ip_network("192.0.0.0/24"), ip_network("192.88.99.0/24"))


class Origin(msgspec.Struct, frozen=True):
    """A scheme, a host and a port; in an allow-list the host may begin with "*."."""

    scheme: str
    host: str  # lower case; an address without brackets
    port: int

    @property
    def authority(self) -> str:
        """The host and, unless the scheme has it as its own, the port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"

    def covers(self, other: Origin) -> bool:
        if (self.scheme, self.port) != (other.scheme, other.port):
            return False
        if self.host.startswith("*."):
            return other.host.endswith(self.host[1:]) and as_address(other.host) is None
        return self.host == other.host


class Url(msgspec.Struct, frozen=True):
    origin: Origin
    path: str
    query: str = ""

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path

    def __str__(self) -> str:
        """For people: without the query, which may hold a secret."""
        return f"{self.origin}{self.path}"


class Allowed(msgspec.Struct, frozen=True):
    """The allow-list. Empty, it allows nothing."""

    origins: tuple[Origin, ...] = ()
    networks: tuple[Network, ...] = ()  # addresses that are not public, and may be called all the same

    def check(self, url: Url) -> None:
        """Refuse a URL whose origin is not on the list, with the line that would allow it."""
        if not any(entry.covers(url.origin) for entry in self.origins):
            listed = ", ".join(f'"{origin}"' for origin in (*self.origins, url.origin))
            raise BadInput(f"{url.origin} is not allowed: write into raptor.toml, under [http], allow = [{listed}]")

    def check_address(self, origin: Origin, address: Address) -> None:
        """Refuse an address that the origin's name led to, unless it is public, named literally, or in a network."""
        inner = unwrapped(address)
        literal = as_address(origin.host)
        named = inner == unwrapped(literal) if literal is not None else origin.host == "localhost" and inner.is_loopback
        if named or is_public(inner) or any(inner in network for network in self.networks):
            return
        raise BadInput(
            f"{origin.host} leads to {address}, which is not a public address: to allow it, write into raptor.toml,"
            f' under [http], networks = ["{inner}/{inner.max_prefixlen}"]'
        )


def read_url(text: object) -> Url:
    """A URL to call. What is wrong with it is said without showing more of it than its host."""
    if not isinstance(text, str) or not text:
        raise BadInput(
            f"a URL (https://...) is expected, not {'nothing' if text in (None, '') else type(text).__name__}"
        )
    if len(text) > LONGEST:
        raise BadInput(f"a URL of more than {LONGEST} characters")
    if not _VISIBLE.fullmatch(text):
        raise BadInput("a URL with a space, a backslash, a control or a non-ASCII character: percent-encode it")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise BadInput("a URL whose host or port cannot be read") from None
    if parts.scheme not in PORTS:
        raise BadInput(
            f"a URL that begins with http:// or https:// is expected, not with {text.partition(':')[0][:20]!r}"
        )
    if "@" in parts.netloc:
        raise BadInput("a URL with a user or a password in it: put them into headers")
    origin = Origin(parts.scheme, _host(parts.netloc, parts.hostname), PORTS[parts.scheme] if port is None else port)
    if not origin.port:
        raise BadInput("a URL with port 0")
    return Url(origin, parts.path or "/", parts.query)


def read_origin(text: object) -> Origin:
    """An entry of the allow-list: https://api.example.com, https://*.example.com, http://127.0.0.1:8080."""
    example = 'an origin such as "https://api.example.com" or "https://*.example.com:8443" is expected'
    if not isinstance(text, str):
        raise BadInput(f"{example}, not {text!r}")
    scheme, _, rest = text.partition("://")
    wild = rest.startswith("*.")
    try:
        url = read_url(f"{scheme}://{rest[2:]}" if wild else text)
    except BadInput as error:
        raise BadInput(f"{example}, and this is {error}") from None
    if url.path != "/" or url.query or "#" in text:
        raise BadInput(f"{example}, and {text!r} has a path: the scheme, the host and the port are what is compared")
    if not wild:
        return url.origin
    if as_address(url.origin.host) is not None:
        raise BadInput(f"{example}, and {text!r} has a * before an address")
    return msgspec.structs.replace(url.origin, host=f"*.{url.origin.host}")


def read_network(text: object) -> Network:
    try:
        return ip_network(text if isinstance(text, str) else "")
    except ValueError:
        raise BadInput(f'a network such as "10.0.0.0/8" is expected, not {text!r}') from None


def read_allowed(origins: Iterable[str], networks: Iterable[str]) -> Allowed:
    return Allowed(tuple(map(read_origin, origins)), tuple(map(read_network, networks)))


def as_address(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def unwrapped(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for: mapped, NAT64, 6to4."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def is_public(address: Address) -> bool:
    """Whether it is neither private, loopback, link-local, multicast nor reserved."""
    if isinstance(address, IPv6Address) and address not in _GLOBAL_6:
        return False
    special = address.is_multicast or address.is_reserved or any(address in network for network in _SPECIAL)
    return address.is_global and not special


def _host(netloc: str, name: str | None) -> str:
    host = (name or "").lower()
    if netloc.startswith("["):
        address = as_address(host)
        if not isinstance(address, IPv6Address) or address.scope_id is not None:
            raise BadInput("a URL whose host in brackets is no IPv6 address")
        return str(address)
    if not _NAME.fullmatch(host):
        raise BadInput(f"a URL whose host {host[:80]!r} is no name: letters, digits, - and dots; xn--... for others")
    return host
