"""One connection against peers that misbehave: each script answers one request after the other."""

import socket
import struct
import threading
import time

import pytest

from millrace.addresses import Address
from millrace.client import Cluster
from millrace.client.connection import CLIENT_VERSIONS, Connection
from millrace.clock import SystemClock
from millrace.errors import (
    AnswerLostError,
    BrokerUnreachableError,
    ClientError,
    MalformedRequestError,
    MillraceError,
    UnsupportedVersionError,
)
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, encode
from millrace.wire.frame import framed
from millrace.wire.header import read_request_header
from millrace.wire.messages import METADATA
from millrace_support.response_headers import encode_response_header

ALL_APIS = [{"api_key": int(key), "min_version": 0, "max_version": 99} for key in CLIENT_VERSIONS]
METADATA_FIELDS = {
    "topics": (),
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


class ScriptedBroker:
    """Answers each request of one connection by the next function of the script, then closes it."""

    def __init__(self, *script):
        self.requests = []
        self._script = script
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._server.getsockname())
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.close()
        self._thread.join()

    def connect(self, **options):
        return Connection(self.address, client_id="test", clock=SystemClock(), **{"timeout_s": 60.0, **options})

    def _serve(self):
        peer, _ = self._server.accept()
        with peer, peer.makefile("rb") as stream:
            for answer in self._script:
                size = stream.read(4)
                if not size:
                    return
                header = read_request_header(memoryview(stream.read(int.from_bytes(size, "big"))))
                self.requests.append((header.api_key, header.api_version))
                peer.sendall(answer(header))


def versions(apis):
    def answer(header):
        fields = {"error_code": 0, "api_keys": apis, "throttle_time": 0}
        body = encode(ApiKey.API_VERSIONS, header.api_version, Direction.RESPONSE, fields)
        return framed(encode_response_header(ApiKey.API_VERSIONS, header.api_version, header.correlation_id), body)

    return answer


def unsupported_version(header):
    body = encode(ApiKey.API_VERSIONS, 0, Direction.RESPONSE, {"error_code": 35, "api_keys": ()})
    return framed(struct.pack(">i", header.correlation_id), body)


def wrong_correlation_id(header):
    return framed(encode_response_header(header.api_key, header.api_version, header.correlation_id + 1), bytes(20))


def nonsense(header):
    return framed(encode_response_header(header.api_key, header.api_version, header.correlation_id), b"\xff" * 20)


def size_only(size):
    return lambda header: struct.pack(">i", size)


def test_the_highest_version_that_both_know_is_chosen():
    ranges = [
        {"api_key": ApiKey.FETCH, "min_version": 4, "max_version": 7},
        {"api_key": ApiKey.METADATA, "min_version": 0, "max_version": 99},
    ]
    with ScriptedBroker(versions(ranges)) as broker, broker.connect() as connection:
        assert connection.version(ApiKey.FETCH) == 7
        assert connection.version(ApiKey.METADATA) == CLIENT_VERSIONS[ApiKey.METADATA].maximum
        with pytest.raises(UnsupportedVersionError, match="PRODUCE"):
            connection.version(ApiKey.PRODUCE)


def test_an_old_broker_is_asked_again_with_version_0():
    with ScriptedBroker(unsupported_version, versions(ALL_APIS)) as broker:
        broker.connect().close()
    assert broker.requests == [(ApiKey.API_VERSIONS, 3), (ApiKey.API_VERSIONS, 0)]


def test_ranges_that_do_not_meet_are_both_named():
    ranges = [{"api_key": ApiKey.FETCH, "min_version": 0, "max_version": 3}]
    expected = pytest.raises(UnsupportedVersionError, match="serves versions 0 to 3, this client 4 to 12")
    with ScriptedBroker(versions(ranges)) as broker, broker.connect() as connection, expected:
        connection.version(ApiKey.FETCH)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (wrong_correlation_id, ClientError),
        (nonsense, MalformedRequestError),
        (size_only(-1), ClientError),
        (size_only(3), ClientError),
        (size_only(1001), ClientError),
        (size_only(20), AnswerLostError),  # and then the script ends, so the connection is closed
    ],
)
def test_an_answer_that_can_not_be_is_an_error(answer, error):
    script = versions(ALL_APIS), answer
    with ScriptedBroker(*script) as broker, broker.connect(max_response_bytes=1000) as connection:
        with pytest.raises(error) as caught:
            connection.request(METADATA, METADATA_FIELDS)
        assert type(caught.value) is error
        assert not connection.is_usable


def test_a_broker_that_does_not_answer_is_given_up_and_its_connection_not_used_again():
    release = threading.Event()

    def silent(header):
        release.wait(60)
        return b""

    with ScriptedBroker(versions(ALL_APIS), silent) as broker:
        connection = broker.connect()
        connection._timeout_s = 0.2  # of the request alone: a busy machine takes longer to connect
        with pytest.raises(AnswerLostError, match=str(broker.address)):
            connection.request(METADATA, METADATA_FIELDS)
        assert not connection.is_usable
        release.set()


@pytest.mark.parametrize("answer", [wrong_correlation_id, nonsense, size_only(20)])
def test_what_is_sent_on_a_connection_that_has_failed_is_an_error_of_the_tree(answer):
    """Several requests may be begun before the first is finished: the next one meets a closed socket."""
    with ScriptedBroker(versions(ALL_APIS), answer) as broker, broker.connect() as connection:
        with pytest.raises(MillraceError):
            connection.request(METADATA, METADATA_FIELDS)
        assert not connection.is_usable
        for send in (connection.begin, connection.request, connection.send):
            with pytest.raises(AnswerLostError, match=str(broker.address)):
                send(METADATA, METADATA_FIELDS)


def test_a_connection_that_the_broker_closed_is_known_to_be_useless():
    with ScriptedBroker(versions(ALL_APIS)) as broker, broker.connect() as connection:
        deadline = time.monotonic() + 60
        while connection.is_usable and time.monotonic() < deadline:
            threading.Event().wait(0.001)
        assert not connection.is_usable


def test_a_broker_that_hangs_up_on_a_question_is_named():
    expected = pytest.raises(BrokerUnreachableError)
    with ScriptedBroker(versions(ALL_APIS)) as broker, Cluster(str(broker.address)) as cluster, expected as caught:
        cluster.metadata()
    assert str(broker.address) in str(caught.value)


def test_nobody_there_is_unreachable_and_named():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # so that no one else takes the port; but nobody listens
        address = Address(*silent.getsockname())
        with pytest.raises(BrokerUnreachableError, match=str(address)):
            Connection(address, client_id="test", timeout_s=10.0, clock=SystemClock())


def test_a_peer_that_hangs_up_at_once_is_unreachable():
    with ScriptedBroker() as broker, pytest.raises(BrokerUnreachableError) as caught:
        broker.connect()
    assert not isinstance(caught.value, AnswerLostError)
