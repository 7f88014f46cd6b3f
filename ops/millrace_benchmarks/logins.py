"""How many connections a broker secures in a second: several client processes connect one after another, all at once.

    handshake    connect ─ TLS, without the resumption of a session ─ ApiVersions ─ close
    login        connect ─ SaslHandshake, SaslAuthenticate twice (SCRAM) ─ close

The answer to ApiVersions shows that the broker has completed its side of the handshake. Clients do as little as they
can: they check no certificates, and derive the keys of their password once.
"""

from __future__ import annotations

import functools
import multiprocessing
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Self

from millrace.addresses import Address, parse_address
from millrace.client.answers import check
from millrace.errors import ClientError
from millrace.security.sasl import scram
from millrace.wire.frame import SIZE_BYTES, framed
from millrace.wire.header import encode_request_header
from millrace.wire.messages import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from millrace_benchmarks.harness import Samples
from millrace_benchmarks.subjects import Subject, pinned

MECHANISM = "SCRAM-SHA-512"
USER, PASSWORD = "bench", "bench-password"
CLIENT_ID = "bench"
TIMEOUT_S = 60.0
VERSION = 1  # of each API: without tagged fields in the header of the answer

Connect = Callable[[Address], None]


class ClientProcesses:
    """Processes that connect at once; a context manager that ends them.

    Args:
        count: How many there are. All keep to the client's core.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        with pinned():
            self._pool = multiprocessing.get_context("spawn").Pool(count)
        self._run(do_nothing, Address("", 0), 0)  # all have imported this module

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.terminate()
        self._pool.join()

    def measure(self, connect: Connect, subject: Subject, listener: str, connections: int) -> Samples:
        """Has the processes share the connections; returns how many a second, and the broker's processor time."""
        each = max(connections // self._count, 1)
        cpu_s, started = subject.cpu_s, time.perf_counter()
        self._run(connect, parse_address(subject.addresses[listener]), each)
        seconds, cpu_s = time.perf_counter() - started, subject.cpu_s - cpu_s
        made = each * self._count
        return {"rate": made / seconds, "cpu": cpu_s / made * 1e6}

    def _run(self, connect: Connect, address: Address, each: int) -> None:
        self._pool.map(_repeat, [(connect, address, each)] * self._count, chunksize=1)


def _repeat(task: tuple[Connect, Address, int]) -> None:
    connect, address, times = task
    for _ in range(times):
        connect(address)


def do_nothing(address: Address) -> None:
    """Connects to nothing."""


def shake_hands(address: Address) -> None:
    """Makes one connection with TLS, and has one request answered."""
    with socket.create_connection(address, TIMEOUT_S) as plain, _context().wrap_socket(plain) as secured:
        answer = _ask(secured, API_VERSIONS, {})
    check(answer.error_code, "ApiVersions")


def log_in(address: Address) -> None:
    """Makes one connection, and logs in by SCRAM."""
    with socket.create_connection(address, TIMEOUT_S) as connected:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        check(_ask(connected, SASL_HANDSHAKE, {"mechanism": MECHANISM}).error_code, MECHANISM)
        first = scram.client_first(USER, scram.new_nonce(), is_by_token=False)
        server = scram.parse_server_first(_say(connected, (scram.GS2_HEADER + first).encode()))
        final = scram.client_final(server.nonce)
        signed = scram.auth_message(first, server.text, final)
        hash_name = scram.SCRAM_HASHES[MECHANISM]
        proof = scram.client_proof(hash_name, _salted(hash_name, server.salt, server.iterations), signed)
        _say(connected, final.encode() + b"," + scram.encoded("p", proof))


@functools.cache
def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@functools.cache
def _salted(hash_name: str, salt: bytes, iterations: int) -> bytes:
    return scram.salted_password(hash_name, PASSWORD, salt, iterations)


def _say(connected: socket.socket, message: bytes) -> bytes:
    answer = _ask(connected, SASL_AUTHENTICATE, {"auth_bytes": message})
    check(answer.error_code, f"the login of {USER}", answer.error_message)
    return bytes(answer.auth_bytes)


def _ask(connected: socket.socket, api: Any, fields: dict[str, Any]) -> Any:
    connected.sendall(
        framed(encode_request_header(api.key, VERSION, 0, CLIENT_ID), api.encode_request(VERSION, fields))
    )
    size = int.from_bytes(_receive(connected, SIZE_BYTES), "big")
    return api.decode_response(VERSION, _receive(connected, size)[SIZE_BYTES:])  # behind the correlation id


def _receive(connected: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        more = connected.recv(size - len(received))
        if not more:
            raise ClientError("the broker closed a connection that it was to secure")
        received += more
    return bytes(received)
