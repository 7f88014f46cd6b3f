"""Records that take long to check: on a thread, while the event loop serves others; the order stays."""

import asyncio
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

from millrace.errors import ErrorCode
from millrace.records.compression import Codec
from millrace.records.message_set import encode_message_set
from millrace.records.record import BatchProducer, NewRecord, Record, decode_records, encode_batch
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace_broker.handlers import k00_produce
from millrace_broker.handlers.api import Request
from millrace_broker.handlers.produce_appends import AT_ONCE_BYTES, LONG_BYTES, MESSAGES_AT_ONCE_BYTES
from millrace_broker.replication.produced import FIRST_VERSION_OF_BATCHES
from millrace_broker.security.client_session import ClientSession
from millrace_support.lying_batches import BATCH_LIES, Draft, Parts
from millrace_support.requests_together import ProducingBroker
from millrace_support.transaction_home import EVENTS
from millrace_support.until import until

VERSION = 9
SMALL = [NewRecord(b"small")]
LARGE = [NewRecord(b"%09d" % number * 10) for number in range(3 * AT_ONCE_BYTES // 2 // 90)]
FEW = [b"one", b"two"]
MANY = [b"%09d" % number for number in range(MESSAGES_AT_ONCE_BYTES // 30)]
LEGACY_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
CODECS = [codec for codec in Codec if codec is not Codec.NONE]


class Gate:
    """An executor that begins nothing until it is opened."""

    def __init__(self):
        self.pool = ThreadPoolExecutor(1)
        self.opened = asyncio.Event()
        self.given = 0

    def submit(self, work):
        self.given += 1
        loop, opened = asyncio.get_running_loop(), self.opened

        def wait_and_work():
            asyncio.run_coroutine_threadsafe(opened.wait(), loop).result()
            return work()

        return self.pool.submit(wait_and_work)


def broker(**config):
    """A broker whose worker waits at a gate."""
    made = ProducingBroker(config, has_follower=False)
    made._services.workers = Gate()
    return made


def body(*batches, acks=-1):
    data = [{"name": EVENTS.topic, "partition_data": [{"index": 0, "records": one} for one in batches]}]
    fields = {"transactional_id": None, "acks": acks, "timeout": 60_000, "topic_data": data}
    return encode(ApiKey.PRODUCE, VERSION, Direction.REQUEST, fields)


def ask(made, session, *bodies, version=VERSION):
    """Handles requests that arrive together on a connection."""
    requests = [Request(version, "c", memoryview(one), session) for one in bodies]
    return k00_produce.handle_all(made._services, requests)


async def told(answer):
    """The error code and the first offset."""
    parts = await asyncio.wait_for(answer, 60) if isinstance(answer, asyncio.Future) else answer
    (found,) = decode(ApiKey.PRODUCE, VERSION, Direction.RESPONSE, b"".join(parts)).responses[0].partition_responses
    return ErrorCode(found.error_code), found.base_offset


def values(made):
    log = made.partition.log
    data = log.read(0, 1 << 24, up_to_offset=log.log_end_offset)
    return [record.value for record in decode_records(data)]


def play(scene):
    asyncio.run(asyncio.wait_for(scene(), 60))


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_batch_waits_for_a_thread_and_what_follows_on_its_connection_waits_behind_it(codec):
    async def scene():
        made, one, other = broker(), ClientSession("one"), ClientSession("other")
        large = body(encode_batch(LARGE, codec=codec))
        first = ask(made, one, large, body(encode_batch(SMALL)))
        later = ask(made, one, body(encode_batch(SMALL, codec=codec)), large)
        assert all(isinstance(answer, asyncio.Future) for answer in [*first, *later])
        assert await told(*ask(made, other, body(encode_batch([NewRecord(b"of another")])))) == (ErrorCode.NONE, 0)
        assert values(made) == [b"of another"]
        made._services.workers.opened.set()
        answers = [await told(answer) for answer in [*first, *later]]
        count = len(LARGE)
        assert answers == [(ErrorCode.NONE, offset) for offset in (1, 1 + count, 2 + count, 3 + count)]
        sent = [record.value for record in LARGE]
        assert values(made) == [b"of another", *sent, b"small", b"small", *sent]
        assert isinstance(ask(made, one, body(encode_batch(SMALL)))[0], list)  # nothing waits any more

    play(scene)


@pytest.mark.parametrize("codec", CODECS)
def test_a_small_batch_is_checked_at_once(codec):
    async def scene():
        made = broker()
        assert await told(*ask(made, ClientSession(), body(encode_batch(SMALL, codec=codec)))) == (ErrorCode.NONE, 0)
        lying = BATCH_LIES["all offset deltas 0"](Draft((Parts(0), Parts(1)), codec), 0).sealed()
        assert (await told(*ask(made, ClientSession(), body(lying))))[0] is ErrorCode.INVALID_RECORD
        assert made._services.workers.given == 0

    play(scene)


def test_what_is_small_and_holds_much_waits_for_a_thread():
    async def scene():
        made = broker()
        batch = encode_batch([NewRecord(bytes(2 * AT_ONCE_BYTES))], codec=Codec.ZSTD)
        assert len(batch) < LONG_BYTES
        (answer,) = ask(made, ClientSession(), body(batch))
        assert isinstance(answer, asyncio.Future)
        made._services.workers.opened.set()
        assert await told(answer) == (ErrorCode.NONE, 0)

    play(scene)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [3, 5])
def test_what_small_batches_of_a_request_hold_is_bounded_together(codec, count):
    async def scene():
        made = broker()
        batch = encode_batch([NewRecord(bytes(AT_ONCE_BYTES // 4))], codec=codec)
        assert len(batch) < LONG_BYTES
        (answer,) = ask(made, ClientSession(), body(*[batch] * count))
        assert isinstance(answer, asyncio.Future) is (count > 4)
        made._services.workers.opened.set()
        parts = await asyncio.wait_for(answer, 60) if count > 4 else answer
        found = decode(ApiKey.PRODUCE, VERSION, Direction.RESPONSE, b"".join(parts)).responses[0].partition_responses
        assert [(one.error_code, one.base_offset) for one in found] == [(0, number) for number in range(count)]

    play(scene)


def test_a_large_batch_that_lies_is_refused_alone():
    async def scene():
        made, session = broker(), ClientSession()
        records = tuple(Parts(0, value=b"%09d" % number * 10) for number in range(3 * AT_ONCE_BYTES // 2 // 90))
        lying = Draft(records, Codec.GZIP).sealed()
        answers = ask(made, session, body(lying), body(encode_batch(SMALL)))
        made._services.workers.opened.set()
        assert [await told(answer) for answer in answers] == [(ErrorCode.INVALID_RECORD, -1), (ErrorCode.NONE, 0)]
        assert values(made) == [b"small"]

    play(scene)


def test_batches_of_an_idempotent_producer_stay_in_their_order():
    async def scene():
        made, session = broker(), ClientSession()
        batches = [
            encode_batch(LARGE if large else SMALL, codec=codec, producer=BatchProducer(7, 0, sequence))
            for large, codec, sequence in (
                (True, Codec.LZ4, 0), (False, Codec.NONE, len(LARGE)), (False, Codec.ZSTD, len(LARGE) + 1),
            )
        ]  # fmt: skip
        answers = ask(made, session, *(body(one) for one in batches))
        made._services.workers.opened.set()
        assert [code for code, _ in [await told(answer) for answer in answers]] == [ErrorCode.NONE] * 3

    play(scene)


def test_what_was_sent_is_appended_though_its_connection_has_gone():
    async def scene():
        made = broker()
        (answer,) = ask(made, ClientSession(), body(encode_batch(LARGE, codec=Codec.GZIP), acks=0))
        await asyncio.sleep(0)
        answer.cancel()
        made._services.workers.opened.set()
        await until(lambda: made.partition.log.log_end_offset)
        assert values(made) == [record.value for record in LARGE]

    play(scene)


def test_a_topic_with_a_codec_of_its_own_compresses_large_batches_on_the_thread():
    async def scene():
        made = broker(**{"compression.type": "gzip"})
        (answer,) = ask(made, ClientSession(), body(encode_batch(LARGE)))
        assert isinstance(answer, asyncio.Future)
        made._services.workers.opened.set()
        assert await told(answer) == (ErrorCode.NONE, 0)
        assert made.partition.log.size_bytes < len(encode_batch(LARGE))
        assert values(made) == [record.value for record in LARGE]

    play(scene)


def test_partitions_of_a_request_are_prepared_together():
    async def scene():
        made = broker()
        (answer,) = ask(made, ClientSession(), body(encode_batch(LARGE, codec=Codec.LZ4), encode_batch(SMALL)))
        made._services.workers.opened.set()
        parts = await asyncio.wait_for(answer, 60)
        found = decode(ApiKey.PRODUCE, VERSION, Direction.RESPONSE, b"".join(parts)).responses[0].partition_responses
        assert [one.base_offset for one in found] == [0, len(LARGE)]

    play(scene)


def message_set(sent, version, codec=Codec.NONE):
    records = [Record(offset, 1000, None, value) for offset, value in enumerate(sent)]
    return encode_message_set(records, magic=min(version, 1), codec=codec)


def ask_old(made, version, *sets, acks=-1):
    asked = [{"name": EVENTS.topic, "partition_data": [{"index": 0, "records": one}]} for one in sets]
    bodies = [
        encode(ApiKey.PRODUCE, version, Direction.REQUEST, {"acks": acks, "timeout": 60_000, "topic_data": [one]})
        for one in asked
    ]
    return ask(made, ClientSession(), *bodies, version=version)


async def told_old(answer):
    """The error code and the first offset, in an answer of v0 to v2."""
    parts = await asyncio.wait_for(answer, 60) if isinstance(answer, asyncio.Future) else answer
    code, offset = struct.unpack_from(f">4x2x{len(EVENTS.topic)}x4x4xhq", b"".join(parts))
    return ErrorCode(code), offset


@pytest.mark.parametrize("version", range(FIRST_VERSION_OF_BATCHES))
@pytest.mark.parametrize(("sent", "codec"), [(MANY, Codec.NONE), *((FEW, codec) for codec in LEGACY_CODECS)])
def test_messages_are_converted_on_the_thread(version, sent, codec):
    async def scene():
        made = broker()
        answers = ask_old(made, version, message_set(sent, version, codec), message_set(FEW, version))
        assert all(isinstance(answer, asyncio.Future) for answer in answers)
        assert values(made) == []
        made._services.workers.opened.set()
        assert [await told_old(answer) for answer in answers] == [(ErrorCode.NONE, 0), (ErrorCode.NONE, len(sent))]
        assert values(made) == [*sent, *FEW]

    play(scene)


@pytest.mark.parametrize("version", range(FIRST_VERSION_OF_BATCHES))
def test_a_few_messages_are_converted_at_once(version):
    async def scene():
        made = broker()
        whole = message_set(FEW, version)
        for sent in (whole, whole[:20], b""):  # what is cut short is passed over
            (answer,) = ask_old(made, version, sent)
            assert (await told_old(answer))[0] is ErrorCode.NONE
        assert values(made) == FEW
        assert made._services.workers.given == 0

    play(scene)


@pytest.mark.parametrize("version", range(FIRST_VERSION_OF_BATCHES))
@pytest.mark.parametrize(("sent", "codec"), [(FEW, Codec.NONE), (MANY, Codec.NONE), (FEW, Codec.GZIP)])
def test_damaged_messages_are_refused_wherever_they_are_converted(version, sent, codec):
    async def scene():
        made = broker()
        made._services.workers.opened.set()
        damaged = bytearray(message_set(sent, version, codec))
        damaged[-1] ^= 1
        for acks, expected in ((-1, ErrorCode.CORRUPT_MESSAGE), (5, ErrorCode.INVALID_REQUIRED_ACKS)):
            (answer,) = ask_old(made, version, bytes(damaged), acks=acks)
            assert (await told_old(answer))[0] is expected
        assert values(made) == []

    play(scene)
