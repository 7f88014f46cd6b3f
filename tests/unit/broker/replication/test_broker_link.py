"""The connection from one broker to another: answers in order, and peers that hang up, hang, or answer nonsense."""

import asyncio
import socket
import struct

import pytest

from millrace.addresses import Address
from millrace.errors import (
    AnswerLostError,
    BrokerUnreachableError,
    ClientError,
    InvalidRequestError,
    MalformedRequestError,
    UnsupportedVersionError,
)
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, encode
from millrace.wire.messages import CONTROLLED_SHUTDOWN, HEARTBEAT
from millrace_broker.replication.broker_link import BrokerLink
from millrace_support.response_headers import encode_response_header
from millrace_support.scripted_broker import ScriptedBroker, answer_frame, answer_versions
from millrace_support.until import until

VERSION = 4
HEARTBEAT_FIELDS = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
BODY = encode(ApiKey.HEARTBEAT, VERSION, Direction.RESPONSE, {"error_code": 27, "throttle_time": 0})


def run(scenario, answer, **options):
    """Runs `scenario(link, broker)` against a broker that answers by `answer`."""
    options = {"client_id": "test", "timeout_s": 60.0, "max_response_bytes": 1 << 20, **options}

    async def whole():
        async with ScriptedBroker(answer) as broker:
            link = await BrokerLink.connect(broker.address, **options)
            try:
                return await scenario(link, broker)
            finally:
                link.close()

    return asyncio.run(asyncio.wait_for(whole(), 120))


async def valid(header, message):
    return answer_frame(header, BODY)


async def echo(header, message):
    return answer_frame(header, bytes(message))


async def silent(header, message):
    await asyncio.Event().wait()


def test_a_typed_request_gets_its_decoded_answer():
    async def scenario(link, broker):
        answer = await link.request(HEARTBEAT, VERSION, HEARTBEAT_FIELDS)
        (request,) = broker.requests
        return int(answer.error_code), request.api_key, request.api_version, request.client_id

    assert run(scenario, valid) == (27, ApiKey.HEARTBEAT, VERSION, "test")


def test_several_requests_in_flight_each_get_their_own_answer():
    release = asyncio.Event()

    async def held(header, message):
        await release.wait()
        return await echo(header, message)

    async def scenario(link, broker):
        asked = [
            asyncio.create_task(link.exchange(ApiKey.FETCH, 11 + number % 2, b"%d" % number)) for number in range(100)
        ]
        await until(lambda: link.in_flight == 100)
        release.set()
        answers = await asyncio.gather(*asked)
        return [bytes(one) for one in answers], link.in_flight

    assert run(scenario, held) == ([b"%d" % number for number in range(100)], 0)


@pytest.mark.parametrize("size", [0, 1, 1000, 300_000, (2 << 20) - 8, 2 << 20, (2 << 20) + 1, 5 << 20])
def test_answers_of_any_size_up_to_the_limit_arrive_whole(size):
    sent = bytes(range(256)) * (size // 256 + 1)

    async def scenario(link, broker):
        for _ in range(3):
            answer = await link.exchange(ApiKey.FETCH, 11, sent[:size])
            assert bytes(answer) == sent[:size]
        with pytest.raises(ClientError, match="limit"):
            await link.exchange(ApiKey.FETCH, 11, bytes(size + 1))
        assert link.is_closed

    run(scenario, echo, max_response_bytes=size + 4)


def test_versions_with_tagged_headers_and_without_them_both_work():
    async def scenario(link, broker):
        old = await link.request(HEARTBEAT, 0, {**HEARTBEAT_FIELDS})
        return int(old.error_code)

    async def old(header, message):
        return answer_frame(header, struct.pack(">h", 16))

    assert run(scenario, old) == 16


def test_the_first_version_of_controlled_shutdown_has_no_client_id():
    async def answer(header, message):
        assert header.client_id is None
        return answer_frame(
            header,
            encode(ApiKey.CONTROLLED_SHUTDOWN, 0, Direction.RESPONSE, {"error_code": 0, "remaining_partitions": ()}),
        )

    async def scenario(link, broker):
        await link.request(CONTROLLED_SHUTDOWN, 0, {"broker_id": 1})

    run(scenario, answer)


def test_versions_that_the_broker_serves_are_asked_for():
    apis = [{"api_key": 56, "min_version": 0, "max_version": 3}, {"api_key": 1, "min_version": 4, "max_version": 17}]

    async def answer(header, message):
        code = 0 if len(header.client_id) == 4 else 35
        fields = {"error_code": code, "api_keys": apis}
        return answer_frame(header, encode(ApiKey.API_VERSIONS, 0, Direction.RESPONSE, fields))

    async def scenario(link, broker):
        return await link.served_versions()

    assert run(scenario, answer) == {56: VersionRange(0, 3), 1: VersionRange(4, 17)}
    with pytest.raises(ClientError, match="35"):
        run(scenario, answer, client_id="other")


def test_the_newest_version_that_both_know_is_asked_for_once():
    async def answer(header, message):
        return answer_versions(header, {ApiKey.ALTER_PARTITION: (1, 3)})

    async def scenario(link, broker):
        alter = ApiKey.ALTER_PARTITION
        newest = [await link.newest_version(alter, VersionRange(*known)) for known in ((2, 9), (0, 1))]
        for api_key, known in ((alter, (4, 9)), (alter, (0, 0)), (ApiKey.FETCH, (0, 9))):
            with pytest.raises(UnsupportedVersionError, match=api_key.name):
                await link.newest_version(api_key, VersionRange(*known))
        return newest, len(broker.requests)

    assert run(scenario, answer) == ([3, 1], 1)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda header: struct.pack(">i", -1), ClientError),
        (lambda header: struct.pack(">i", (1 << 20) + 1), ClientError),
        (lambda header: struct.pack(">i", 3) + b"abc", ClientError),
        (lambda header: struct.pack(">ii", 4, header.correlation_id + 1), ClientError),
        (lambda header: struct.pack(">ii", 4, header.correlation_id), MalformedRequestError),
        (lambda header: answer_frame(header, b"\xff" * 20), MalformedRequestError),
        (lambda header: answer_frame(header, BODY)[:-1], AnswerLostError),
        (lambda header: b"", AnswerLostError),
    ],
)
def test_an_answer_that_can_not_be_ends_the_link_and_all_that_wait(answer, error):
    async def once(header, message):
        if header.correlation_id == 1:
            return answer(header)
        return None

    async def scenario(link, broker):
        asked = [asyncio.create_task(link.request(HEARTBEAT, VERSION, HEARTBEAT_FIELDS)) for _ in range(3)]
        first, *others = await asyncio.gather(*asked, return_exceptions=True)
        assert type(first) is error
        assert all(isinstance(one, BrokerUnreachableError | ClientError | MalformedRequestError) for one in others)
        assert link.is_closed
        assert link.in_flight == 0
        with pytest.raises(BrokerUnreachableError) as caught:
            await link.exchange(ApiKey.FETCH, 11, b"")
        assert type(caught.value) is BrokerUnreachableError

    run(scenario, once)


def test_an_answer_that_was_not_asked_for_ends_the_link():
    async def twice(header, message):
        return 2 * answer_frame(header, BODY)

    async def scenario(link, broker):
        await link.request(HEARTBEAT, VERSION, HEARTBEAT_FIELDS)
        await until(lambda: link.is_closed)

    run(scenario, twice)


def test_a_broker_that_does_not_answer_is_given_up():
    async def scenario(link, broker):
        link._timeout_s = 0.05  # the connection itself may take longer
        with pytest.raises(AnswerLostError, match="HEARTBEAT in time"):
            await link.request(HEARTBEAT, VERSION, HEARTBEAT_FIELDS)
        assert link.is_closed

    run(scenario, silent)


def test_a_broker_may_hold_a_request_as_long_as_it_was_asked_to():
    async def slow(header, message):
        await asyncio.sleep(0.2)
        return answer_frame(header, BODY)

    async def scenario(link, broker):
        link._timeout_s = 0.01  # the connection itself may take longer
        await link.exchange(ApiKey.HEARTBEAT, VERSION, b"", wait_s=60.0)

    run(scenario, slow)


def test_a_caller_that_no_longer_waits_does_not_disturb_the_others():
    release = asyncio.Event()

    async def held(header, message):
        await release.wait()
        return await echo(header, message)

    async def scenario(link, broker):
        asked = [asyncio.create_task(link.exchange(ApiKey.FETCH, 11, b"%d" % number)) for number in range(3)]
        await until(lambda: link.in_flight == 3)
        asked[1].cancel()
        release.set()
        return bytes(await asked[0]), bytes(await asked[2]), link.is_closed

    assert run(scenario, held) == (b"0", b"2", False)


def test_closing_a_link_ends_all_that_wait():
    async def scenario(link, broker):
        asked = asyncio.create_task(link.request(HEARTBEAT, VERSION, HEARTBEAT_FIELDS))
        await until(lambda: link.in_flight)
        link.close()
        with pytest.raises(AnswerLostError):
            await asked
        link.close()

    run(scenario, silent)


def test_a_value_that_does_not_fit_is_refused_before_anything_is_sent():
    async def scenario(link, broker):
        with pytest.raises(InvalidRequestError):
            await link.request(HEARTBEAT, VERSION, {**HEARTBEAT_FIELDS, "generation_id": 1 << 40})
        await link.request(HEARTBEAT, VERSION, HEARTBEAT_FIELDS)
        return len(broker.requests)

    assert run(scenario, valid) == 1


@pytest.mark.parametrize("address", [Address("127.0.0.1", 1 << 17), Address("x" * 100, 9092), Address("127.0.0.1", -1)])
def test_an_address_that_can_not_be_is_unreachable(address):
    with pytest.raises(BrokerUnreachableError, match="no broker answers"):
        asyncio.run(BrokerLink.connect(address, client_id="t", timeout_s=10, max_response_bytes=100))


def test_an_address_where_no_broker_listens_is_unreachable():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = Address(*taken.getsockname())
        with pytest.raises(BrokerUnreachableError, match=str(address)):
            asyncio.run(BrokerLink.connect(address, client_id="t", timeout_s=10, max_response_bytes=100))


def test_an_announced_size_takes_no_memory_before_its_bytes_arrive():
    async def announces(header, message):
        return struct.pack(">i", 900 << 20) + encode_response_header(ApiKey.FETCH, 11, header.correlation_id)

    async def scenario(link, broker):
        asked = asyncio.create_task(link.exchange(ApiKey.FETCH, 11, b""))
        await until(lambda: link._frames.held_bytes)
        held = link._frames.held_bytes
        asked.cancel()
        return held

    assert run(scenario, announces, max_response_bytes=1 << 30) <= 1 << 20
