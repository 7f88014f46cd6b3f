"""An unknown user takes as long as a wrong password: 10,000 tries of each, in turn, on one connection after another.

How long they take depends on the machine, so only the soak measures it, and the unit test of the credentials counts the
work. Tries of both kinds alternate, each before the other in turn, so that whatever slows the machine down slows both.
"""

import statistics
import time

import pytest

from millrace.security.sasl.scram import ScramClient
from millrace.wire.api import ApiKey
from millrace_support.raw import RawConnection
from millrace_support.sasl_brokers import MECHANISMS, USER, sasl_broker, sasl_properties

TRIES = 10_000
SHARE = 0.02  # by which the medians may differ


def token(peer, text):
    return peer.request(ApiKey.SASL_AUTHENTICATE, 1, {"auth_bytes": text})


def seconds_of_plain(peer, user):
    started = time.perf_counter()
    assert token(peer, f"\0{user}\0wrong".encode()).error_code
    return time.perf_counter() - started


def seconds_of_scram(peer, user):
    client = ScramClient("SCRAM-SHA-256", user, "wrong")
    started = time.perf_counter()
    challenge = token(peer, client.initial_response()).auth_bytes
    first = time.perf_counter() - started
    proof = client.respond(challenge)
    started = time.perf_counter()
    assert token(peer, proof).error_code
    return first + time.perf_counter() - started


@pytest.mark.parametrize(("mechanism", "measure"), [("PLAIN", seconds_of_plain), ("SCRAM-SHA-256", seconds_of_scram)])
def test_an_unknown_user_takes_as_long_as_a_wrong_password(request, tmp_path, record_property, mechanism, measure):
    if not request.config.getoption("--soak"):
        pytest.skip("a measurement: --soak runs it")
    taken = {USER: [], "nancy": []}
    properties = sasl_properties(*MECHANISMS, connection_failed_authentication_delay_ms="0")
    with sasl_broker(tmp_path / "data", properties) as broker:
        for number in range(TRIES):
            for user in sorted(taken, reverse=number % 2 == 1):
                with RawConnection(broker.bootstrap) as peer:
                    peer.request(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism})
                    taken[user].append(measure(peer, user))
    known, unknown = (statistics.median(seconds) for seconds in taken.values())
    record_property("us for a wrong password", round(known * 1e6, 1))
    record_property("us for an unknown user", round(unknown * 1e6, 1))
    assert abs(known - unknown) < SHARE * known
