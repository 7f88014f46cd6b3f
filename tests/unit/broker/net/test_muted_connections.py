"""A throttled client is told at once, and nothing more of its connection is read; nothing here waits for a time.

Throttle times are hours long, so whatever happens meanwhile happens to a muted connection. `unmute` ends one.
"""

import asyncio
from datetime import timedelta

import pytest

from millrace.clock import SystemClock
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.frame import framed
from millrace.wire.header import encode_request_header, has_tagged_response_header
from millrace_broker.broker import Broker
from millrace_broker.startup.options import parse_options

BATCH = encode_batch([NewRecord(bytes(1_000_000))])
SMALL = encode_batch([NewRecord(b"small")])
QUOTA = {"clients/app": {"producer_byte_rate": "10", "consumer_byte_rate": "100"}}


METADATA = {
    "topics": (), "allow_auto_topic_creation": False, "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}  # fmt: skip


class Peer:
    """A client over streams, in the loop of the broker."""

    def __init__(self, reader, writer, client_id="app"):
        self.reader, self.writer, self.client_id = reader, writer, client_id

    def send(self, key, version, fields):
        body = fields if isinstance(fields, bytes) else encode(key, version, Direction.REQUEST, fields)
        self.writer.write(framed(encode_request_header(key, version, 1, self.client_id), body))

    async def receive(self, key, version):
        frame = await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))
        body = frame[4 + has_tagged_response_header(key, version) :]
        return body if version < 3 else decode(key, version, Direction.RESPONSE, body)

    async def ask(self, key, version, fields):
        self.send(key, version, fields)
        return await self.receive(key, version)


async def until(holds):
    while True:
        if found := holds():
            return found
        await asyncio.sleep(0)


def produce(acks=1, records=BATCH):
    return {
        "transactional_id": None, "acks": acks, "timeout": 1000,
        "topic_data": [{"name": "events", "partition_data": [{"index": 0, "records": records}]}],
    }  # fmt: skip


def fetch(session_id=0, epoch=0, offset=0):
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 24}
    return {
        "replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 24, "isolation_level": 0,
        "session_id": session_id, "session_epoch": epoch, "forgotten_topics_data": (), "rack_id": "",
        "topics": [{"topic": "events", "partitions": [partition]}],
    }  # fmt: skip


class Home:
    """A broker with a topic, and its client."""

    def __init__(self, broker):
        self.broker, self.services, self.server = broker, broker._services, broker._server

    async def set_quotas(self, quotas, entity="clients/app"):
        await self.services.configs.change_client(entity, lambda _: quotas, validate_only=False)

    async def connect(self, client_id="app"):
        address = self.server._listening[0].sockets[0].getsockname()
        known = set(self.server._connections)
        peer = Peer(*await asyncio.open_connection(*address), client_id)
        return peer, (await until(lambda: self.server._connections - known)).pop()


def play(tmp_path, scene, configs=QUOTA, options=()):
    async def with_a_broker():
        broker = Broker(
            parse_options(["--standalone", "--data", str(tmp_path), "--listen", "127.0.0.1:0", *options]),
            SystemClock(),
        )
        await broker.start()
        try:
            await broker._services.topics.create("events")
            home = Home(broker)
            for entity, quotas in configs.items():
                await home.set_quotas(quotas, entity)
            return await asyncio.wait_for(scene(home), 60)
        finally:
            await broker.stop()

    return asyncio.run(with_a_broker())


async def throttled(home):
    """Returns a client and its connection, which is muted for hours."""
    peer, connection = await home.connect()
    answer = await peer.ask(ApiKey.PRODUCE, 9, produce())
    assert answer.throttle_time > timedelta(hours=2)
    assert answer.responses[0].partition_responses[0].error_code == 0, "the records are there all the same"
    assert home.server.metrics.muted == 1
    return peer, connection


def test_a_producer_is_told_at_once_and_not_read_until_it_is_over(tmp_path):
    async def scene(home):
        peer, connection = await throttled(home)
        assert not connection.is_reading
        other, _ = await home.connect("other")
        peer.send(ApiKey.METADATA, 9, METADATA)
        assert (await other.ask(ApiKey.PRODUCE, 9, produce())).throttle_time == timedelta(0)
        assert not connection._pending
        connection.unmute()
        assert home.server.metrics.muted == 0
        assert (await peer.receive(ApiKey.METADATA, 9)).throttle_time == timedelta(0)

    play(tmp_path, scene)


def test_requests_that_had_arrived_before_wait_too_and_are_answered_in_order(tmp_path):
    async def scene(home):
        peer, connection = await home.connect()
        peer.send(ApiKey.PRODUCE, 9, produce())
        peer.send(ApiKey.METADATA, 9, METADATA)
        assert (await peer.receive(ApiKey.PRODUCE, 9)).throttle_time > timedelta(hours=2)
        assert not connection._pending
        connection.unmute()
        assert (await peer.receive(ApiKey.METADATA, 9)).brokers

    play(tmp_path, scene)


def test_acks_0_has_no_answer_and_is_muted(tmp_path):
    async def scene(home):
        peer, connection = await home.connect()
        peer.send(ApiKey.PRODUCE, 9, produce(acks=0))
        await until(lambda: connection._is_muted)
        peer.send(ApiKey.METADATA, 9, METADATA)
        connection.unmute()
        assert (await peer.receive(ApiKey.METADATA, 9)).brokers

    play(tmp_path, scene)


def test_the_first_versions_are_muted_though_they_can_not_be_told(tmp_path):
    async def scene(home):
        home.services.replicas.append(next(iter(home.services.replicas.partitions)), BATCH)
        await home.set_quotas({"consumer_byte_rate": "100", "request_percentage": "0"})
        peer, connection = await home.connect()
        places = (0).to_bytes(4) + (0).to_bytes(8) + (1 << 24).to_bytes(4)
        body = b"\xff" * 4 + bytes(4) + bytes(4) + (1).to_bytes(4) + b"\x00\x06events" + (1).to_bytes(4) + places
        assert await peer.ask(ApiKey.FETCH, 0, body) == bytes(4), "no topics, and nothing before them"
        assert connection._is_muted

    play(tmp_path, scene)


def test_a_throttled_fetch_is_empty_and_its_session_goes_on(tmp_path):
    async def scene(home):
        key = next(iter(home.services.replicas.partitions))
        home.services.replicas.append(key, SMALL)
        peer, connection = await home.connect()
        first = await peer.ask(ApiKey.FETCH, 11, fetch())
        assert first.responses[0].partitions[0].records
        home.services.replicas.append(key, BATCH)
        empty = await peer.ask(ApiKey.FETCH, 11, fetch(first.session_id, 1, offset=1))
        assert (empty.error_code, empty.session_id, empty.responses) == (0, first.session_id, ())
        assert empty.throttle_time > timedelta(hours=2)
        await home.set_quotas({})
        connection.unmute()
        again = await peer.ask(ApiKey.FETCH, 11, fetch(first.session_id, 2, offset=1))
        assert len(again.responses[0].partitions[0].records) > 1_000_000
        assert again.throttle_time == timedelta(0)

    play(tmp_path, scene)


def test_replicas_are_not_throttled(tmp_path):
    async def scene(home):
        home.services.replicas.append(next(iter(home.services.replicas.partitions)), BATCH)
        await home.set_quotas({"consumer_byte_rate": "1", "request_percentage": "0"})
        peer, connection = await home.connect()
        answer = await peer.ask(ApiKey.FETCH, 11, fetch() | {"replica_id": 7})
        assert answer.responses
        assert not connection._is_muted

    play(tmp_path, scene)


def test_a_muted_connection_ends_when_the_broker_stops_and_what_had_arrived_is_answered(tmp_path):
    async def scene(home):
        peer, _ = await home.connect()
        peer.send(ApiKey.PRODUCE, 9, produce())
        peer.send(ApiKey.METADATA, 9, METADATA)
        await peer.receive(ApiKey.PRODUCE, 9)
        await home.server.drain(30)
        assert home.server.connection_count == home.server.metrics.muted == 0

    play(tmp_path, scene)


def test_a_muted_connection_that_dies_leaves_nothing_behind(tmp_path):
    async def scene(home):
        peer, connection = await throttled(home)
        timer = connection._unmuting
        peer.writer.close()
        connection.abort()
        await until(lambda: not home.server.connection_count)
        assert timer.cancelled()
        assert home.server.metrics.muted == 0

    play(tmp_path, scene)


def test_a_muted_connection_that_is_idle_is_closed(tmp_path):
    async def scene(home):
        _, connection = await throttled(home)
        connection.last_active -= home.services.config.connections_max_idle_ms / 1000 + 1
        home.server._check_idle()
        await until(lambda: not home.server.connection_count)
        assert (home.server.metrics.idle_closed, home.server.metrics.muted) == (1, 0)

    play(tmp_path, scene)


def test_the_longest_throttle_time_counts(tmp_path):
    async def scene(home):
        _, connection = await throttled(home)
        until = connection._unmuting.when()
        connection.mute(10)
        assert connection._unmuting.when() == pytest.approx(until, abs=1)
        connection.mute(1 << 30)
        assert connection._unmuting.when() > until + 1
        assert home.server.metrics.muted == 1

    play(tmp_path, scene)


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.LIST_GROUPS])
def test_time_is_throttled_for_one_window(tmp_path, key):
    async def scene(home):
        peer, connection = await home.connect()
        answer = await peer.ask(key, 3, {
            ApiKey.METADATA: {"topics": ()},
            ApiKey.API_VERSIONS: {"client_software_name": "a", "client_software_version": "1"},
            ApiKey.LIST_GROUPS: {},
        }[key])  # fmt: skip
        assert answer.throttle_time == timedelta(hours=1)
        assert connection._is_muted

    an_hour = ("--set", "quota.window.size.seconds=3600")
    play(tmp_path, scene, {"clients/app": {"request_percentage": "0"}}, an_hour)


@pytest.mark.parametrize(("version", "codes"), [(5, [0, 0, 0]), (6, [0, 89, 89])])
def test_changes_are_refused_by_a_strict_quota_and_throttled_by_another(tmp_path, version, codes):
    async def scene(home):
        peer, connection = await home.connect()
        topics = [
            {"name": f"t{n}", "num_partitions": 2, "replication_factor": 1, "assignments": (), "configs": ()}
            for n in range(3)
        ]
        answer = await peer.ask(
            ApiKey.CREATE_TOPICS, version, {"topics": topics, "timeout": 60_000, "validate_only": False}
        )
        assert [one.error_code for one in answer.topics] == codes
        assert answer.throttle_time > timedelta(minutes=1)
        assert connection._is_muted
        assert set(home.services.metadata.image.topics) == {"events", *(f"t{n}" for n in range(3) if not codes[n])}

    play(tmp_path, scene, {"clients/app": {"controller_mutation_rate": "0.01"}})


def test_a_topic_that_is_created_on_the_way_counts_and_is_not_refused(tmp_path):
    async def scene(home):
        peer, connection = await home.connect()
        asked = {**METADATA, "topics": [{"name": "asked-for"}], "allow_auto_topic_creation": True}
        answer = await peer.ask(ApiKey.METADATA, 9, asked)
        assert (answer.topics[0].error_code, answer.throttle_time) == (0, timedelta(0))
        assert not connection._is_muted
        deleted = {"topics": [{"name": "events", "topic_id": None}], "timeout": 60_000}
        assert (await peer.ask(ApiKey.DELETE_TOPICS, 6, deleted)).responses[0].error_code == 89

    play(tmp_path, scene, {"clients/app": {"controller_mutation_rate": "0.01"}})


def test_the_topic_of_coordinators_counts_for_who_looks_for_the_first_of_them(tmp_path):
    async def scene(home):
        peer, connection = await home.connect()
        answer = await peer.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
        assert (answer.coordinators[0].error_code, answer.throttle_time) == (0, timedelta(0))
        assert not connection._is_muted
        deleted = {"topics": [{"name": "events", "topic_id": None}], "timeout": 60_000}
        assert (await peer.ask(ApiKey.DELETE_TOPICS, 6, deleted)).responses[0].error_code == 89

    play(tmp_path, scene, {"clients/app": {"controller_mutation_rate": "0.01"}})


def test_deletions_and_new_partitions_are_changes_too(tmp_path):
    async def scene(home):
        one, connection = await home.connect()
        grown = {"topics": [{"name": "events", "count": 3, "assignments": None}], "timeout": 60_000,
                 "validate_only": False}  # fmt: skip
        assert (await one.ask(ApiKey.CREATE_PARTITIONS, 3, grown)).results[0].error_code == 0
        deleted = {"topics": [{"name": "events", "topic_id": None}], "timeout": 60_000}
        refused = await one.ask(ApiKey.DELETE_TOPICS, 6, deleted)
        assert refused.responses[0].error_code == 89
        assert refused.throttle_time > timedelta(minutes=1)
        connection.unmute()
        lenient = await one.ask(ApiKey.DELETE_TOPICS, 4, {"topic_names": ["events"], "timeout": 60_000})
        assert (lenient.responses[0].error_code, lenient.throttle_time > timedelta(minutes=1)) == (0, True)

    play(tmp_path, scene, {"clients/app": {"controller_mutation_rate": "0.01"}})
