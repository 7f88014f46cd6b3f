"""Addresses of servers as text: `HOST:PORT`, and lists of them.

    localhost:9092                  a server that a client connects to
    [::1]:9092                      an IPv6 host stands in brackets
    10.0.0.1:9092,10.0.0.2:9092     some brokers of a cluster, by which a client finds the others
    127.0.0.1:0                     where a server listens on a free port
    :9092                           where a server listens on every address of the machine
    INTERNAL://10.0.0.1:9092        where one listener of a broker is reached

Every such text is parsed here. What is no address raises MalformedValueError, which names the text.
"""

from __future__ import annotations

from typing import NamedTuple

from millrace.config import MAX_PORT, whole_number
from millrace.errors import MalformedValueError

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 -- what an absent host means to a server
EVERY_IPV6_ADDRESS = "::"
LOOPBACK = "127.0.0.1"
PLAINTEXT = "PLAINTEXT"
FIRST_PORT = 1
FREE_PORT = 0


class Address(NamedTuple):
    """The host and port of a server; as text `HOST:PORT`, an IPv6 host in brackets."""

    host: str
    port: int

    @property
    def is_every_address(self) -> bool:
        """Whether the host, such as 0.0.0.0, means all addresses of the machine; no client can connect to it."""
        return self.host in (EVERY_ADDRESS, EVERY_IPV6_ADDRESS)

    @property
    def from_this_machine(self) -> Address:
        """The address at which this machine reaches a server that listens here: loopback where the host means all."""
        return self._replace(host=LOOPBACK) if self.is_every_address else self

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Returns whether a host is a loopback address, which only this machine can connect to."""
    import ipaddress  # noqa: PLC0415  # few programs ask

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Endpoint(NamedTuple):
    """The name, host and port at which clients reach one listener of a broker; as text `LISTENER://HOST:PORT`.

    `security_protocol` is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
    """

    listener: str
    security_protocol: str
    host: str
    port: int

    @property
    def address(self) -> Address:
        """The host and port of this endpoint."""
        return Address(self.host, self.port)

    def __str__(self) -> str:
        return f"{self.listener}://{self.address}"


def plaintext_endpoint(host: str, port: int) -> Endpoint:
    """Returns an endpoint at this address whose listener name and security protocol are both PLAINTEXT."""
    return Endpoint(PLAINTEXT, PLAINTEXT, host, port)


def parse_address(text: str) -> Address:
    """Returns the address in `HOST:PORT`, to connect to; raises MalformedValueError for another form or port 0."""
    address = _parse(text, FIRST_PORT)
    if not address.host:
        raise _wrong_form(text)
    return address


def parse_listen_address(text: str) -> Address:
    """Returns the address in `[HOST]:PORT`, to listen on; raises MalformedValueError for another form.

    Without a host it stands for every IPv4 address of the machine; port 0 stands for a free port.
    """
    address = _parse(text, FREE_PORT)
    return address if address.host else address._replace(host=EVERY_ADDRESS)


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Returns the addresses in `HOST:PORT,HOST:PORT`; raises MalformedValueError for a wrong one, or for none."""
    addresses = tuple(parse_address(part) for part in text.split(",") if part.strip())
    if not addresses:
        raise MalformedValueError(f"{text!r}: expected HOST:PORT, or several of them with commas between")
    return addresses


def _parse(text: str, first_port: int) -> Address:
    host, separator, port = text.strip().rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if is_bracketed:
        host = host[1:-1]
    is_wrong = (not host) if is_bracketed else any(sign in host for sign in ":[]")
    if is_wrong or not separator or not (port.isascii() and port.isdecimal()):
        raise _wrong_form(text)
    number = whole_number(port, MAX_PORT)
    if number is None or number < first_port:
        raise MalformedValueError(f"{text!r}: a port lies between {first_port} and {MAX_PORT}")
    return Address(host, number)


def _wrong_form(text: str) -> MalformedValueError:
    return MalformedValueError(f"{text!r}: expected HOST:PORT")
