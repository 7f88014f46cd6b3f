"""`HOST:PORT`, and lists of them as clients are given to find a cluster by."""

from __future__ import annotations

from typing import NamedTuple

from millrace.config import MAX_PORT, whole_number
from millrace.errors import InvalidConfigError


class Address(NamedTuple):
    """Where a broker listens; as text `host:port`, an IPv6 host in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """The address that a text names; InvalidConfigError where it names none."""
    host, _, port = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if not host or (":" in host and not bracketed) or not (port.isascii() and port.isdecimal()):
        raise InvalidConfigError(f"{text!r}: expected HOST:PORT")
    if not (number := whole_number(port, MAX_PORT)):
        raise InvalidConfigError(f"{text!r}: a port lies between 1 and {MAX_PORT}")
    return Address(host, number)


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """The addresses of `HOST:PORT,HOST:PORT`; InvalidConfigError for one that is none, or for an empty list."""
    addresses = tuple(parse_address(part) for part in text.split(",") if part.strip())
    if not addresses:
        raise InvalidConfigError(f"{text!r}: expected HOST:PORT, or several of them with commas between")
    return addresses
