"""Peers that authenticate in odd ways: changed, cut short, out of order, stalled. The broker serves all others."""

import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

import confluent_kafka as confluent
import pytest

from millrace.addresses import parse_address
from millrace.security.sasl.scram import ScramClient
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, encode
from millrace.wire.frame import framed
from millrace.wire.header import encode_request_header
from millrace_support.raw import RawConnection
from millrace_support.sasl_brokers import MECHANISMS, PASSWORD, USER, sasl_broker, sasl_properties
from millrace_support.waiting import awaited

MAX_GROWTH_BYTES = 100 << 20
STALLED = 200
STALLED_SOAK = 1000
ROUND = 100  # connections
TIMEOUT_S = 60.0
LIMIT_LINE = "bytes of memory for clients that have not logged in are used up"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    properties = sasl_properties(*MECHANISMS, connection_failed_authentication_delay_ms="1")
    with sasl_broker(tmp_path_factory.mktemp("hostile"), properties) as process:
        yield process


def asked(api_key, version, **fields):
    return framed(
        encode_request_header(api_key, version, 1, "peer"), encode(api_key, version, Direction.REQUEST, fields)
    )


def handshake(mechanism, version=1):
    return asked(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism)


def token(text, version=1):
    return asked(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=text)


SCRAM = ScramClient("SCRAM-SHA-256", USER, PASSWORD)
VERSIONS = asked(ApiKey.API_VERSIONS, 0)
WHOLE = [
    [VERSIONS, handshake("PLAIN"), token(f"\0{USER}\0{PASSWORD}".encode())],
    [handshake("SCRAM-SHA-256"), token(SCRAM.initial_response(), 2), token(b"c=biws,r=a,p=bQ==")],
    [VERSIONS, handshake("SCRAM-SHA-512", 0), framed(SCRAM.initial_response()), framed(b"c=biws,r=a,p=bQ==")],
    [VERSIONS, asked(ApiKey.METADATA, 4, topics=None, allow_auto_topic_creation=True)],
    [handshake("GSSAPI"), token(b"")],
    [token(b"\0\0"), handshake("PLAIN")],
]


def changed(frames, chance):
    """Returns the bytes of a conversation with some of them changed, left out, put in or in another order."""
    frames = [bytearray(one) for one in frames]
    for _ in range(chance.randint(0, 3)):
        frame = chance.choice(frames)
        at = chance.randrange(len(frame))
        match chance.randrange(5):
            case 0:
                frame[at] = chance.randrange(256)
            case 1:
                del frame[at:]
                frame += b"\0"
            case 2:
                frame[at:at] = chance.randbytes(chance.randint(1, 20))
            case 3:
                chance.shuffle(frames)
            case 4:
                body = bytes(frame[4:])
                frame[:4] = len(body).to_bytes(4, "big")
    return b"".join(frames)


def memory_bytes(process):
    lines = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


def new_producer(broker):
    return confluent.Producer({
        "bootstrap.servers": broker.bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": USER, "sasl.password": PASSWORD,
    })  # fmt: skip


def serves(broker, value=b"x"):
    """Returns whether a well-behaved client is served."""
    producer = new_producer(broker)
    producer.produce("kept", value)
    return producer.flush(TIMEOUT_S) == 0


def spoken(address, said):
    """Sends all bytes, and reads until the broker closes the connection."""
    with socket.create_connection(address, TIMEOUT_S) as peer, suppress(ConnectionError):
        peer.sendall(said)
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(1 << 16):
            pass


def test_a_frame_before_authentication_is_small(broker):
    """Comes before the tests in which so much is refused that the broker leaves lines out of its log."""
    too_large = (512 << 10) + 1
    with socket.create_connection(parse_address(broker.bootstrap), TIMEOUT_S) as peer:
        peer.sendall(VERSIONS)
        assert peer.recv(4)  # the connection is open
        peer.sendall(too_large.to_bytes(4, "big"))
        with suppress(ConnectionError):
            while peer.recv(1 << 16):
                pass
    assert f"frame of {too_large} bytes; the limit is {too_large - 1}" in broker.read_log()


@pytest.mark.soak(rounds=5, soak_rounds=1000)
def test_changed_handshakes_harm_nobody(broker, rounds):
    address = parse_address(broker.bootstrap)
    assert serves(broker)
    before = memory_bytes(broker)
    for number in rounds:
        chance = Random(number)
        for _ in range(ROUND):
            spoken(address, changed(chance.choice(WHOLE), chance))
    assert serves(broker)
    assert memory_bytes(broker) - before < MAX_GROWTH_BYTES
    assert "Traceback" not in broker.read_log()


def test_stalled_handshakes_cost_little(broker, request):
    address = parse_address(broker.bootstrap)
    count = STALLED_SOAK if request.config.getoption("--soak") else STALLED
    assert serves(broker)
    before = memory_bytes(broker)
    with ExitStack() as stack:
        for number in range(count):
            peer = stack.enter_context(socket.create_connection(address, TIMEOUT_S))
            frames = WHOLE[number % 3]
            peer.sendall(b"".join(frames[:-1]) + frames[-1][:-1])  # all but the last byte
        assert serves(broker)
        assert memory_bytes(broker) - before < MAX_GROWTH_BYTES


def test_half_frames_of_those_who_have_not_logged_in_leave_the_memory_to_those_who_have(tmp_path):
    limit_bytes, strangers = 16 << 20, 1100
    half = (500_000).to_bytes(4, "big") + bytes(400_000)
    properties = sasl_properties(*MECHANISMS) | {"queued.max.request.bytes": str(limit_bytes)}
    with sasl_broker(tmp_path, properties) as broker, ExitStack() as stack:
        assert serves(broker)
        for _ in range(strangers):
            peer = stack.enter_context(socket.create_connection(parse_address(broker.bootstrap), TIMEOUT_S))
            peer.setblocking(False)
            with suppress(BlockingIOError):
                peer.send(half)
        awaited(lambda: LIMIT_LINE in broker.read_log() or None, LIMIT_LINE)
        assert strangers * len(half) > limit_bytes
        assert serves(broker, value=bytes(300_000))
        assert broker.read_log().count(LIMIT_LINE) == 1


def test_who_has_not_logged_in_in_time_is_closed_and_who_has_stays(tmp_path):
    properties = sasl_properties(*MECHANISMS, connections_max_login_ms="500")
    with sasl_broker(tmp_path, properties) as broker:
        with socket.create_connection(parse_address(broker.bootstrap), TIMEOUT_S) as silent:
            producer = new_producer(broker)
            producer.produce("kept", b"before")
            assert producer.flush(TIMEOUT_S) == 0
            with suppress(ConnectionError):
                assert silent.recv(1) == b""
        producer.produce("kept", b"after")
        assert producer.flush(TIMEOUT_S) == 0
        assert "no login within 0.5 s" in broker.read_log()


def test_no_other_request_is_answered_before_authentication(broker):
    with socket.create_connection(parse_address(broker.bootstrap), TIMEOUT_S) as peer:
        peer.sendall(asked(ApiKey.METADATA, 4, topics=None, allow_auto_topic_creation=True))
        assert peer.recv(1) == b""


def test_bare_tokens_authenticate_as_old_clients_send_them(broker):
    with RawConnection(broker.bootstrap) as peer:
        assert peer.request(ApiKey.SASL_HANDSHAKE, 0, {"mechanism": "SCRAM-SHA-256"}).error_code == 0
        client = ScramClient("SCRAM-SHA-256", USER, PASSWORD)
        message = client.initial_response()
        while not client.is_complete:
            message = client.respond(peer.exchange_token(message))
        assert peer.request(ApiKey.METADATA, 4, {"topics": [], "allow_auto_topic_creation": False}).brokers
