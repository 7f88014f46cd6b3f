"""An offset is out of range only once the newest of all leaders says so: one that is cut off does not count."""

import asyncio
import contextlib
import queue

from millrace.client.consumer.assignment import Partition
from millrace.client.consumer.config import ConsumerConfig
from millrace.client.consumer.fetcher import Fetchers
from millrace.client.consumer.streams import Feed
from millrace.clock import SystemClock
from millrace.errors import ErrorCode
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode, encode
from millrace_support.scripted_broker import ScriptedBroker, answer_frame, answer_versions

TOPIC, OFFSET, FORMER_EPOCH, NEWEST_EPOCH, EARLIEST = "t", 4948, 5, 6, 100
SERVED = {
    ApiKey.METADATA: VersionRange(7, 7),
    ApiKey.FETCH: VersionRange(11, 11),
    ApiKey.LIST_OFFSETS: VersionRange(5, 5),
    ApiKey.API_VERSIONS: VersionRange(0, 0),
}
TIMEOUT_S = 60


class Stream:
    """A stream that takes all chunks."""

    has_room = True

    def __init__(self):
        self.chunks = queue.Queue()
        self.errors = []

    def put(self, chunk):
        self.chunks.put(chunk)

    def fail(self, error):
        self.errors.append(error)


class Cluster:
    """Two brokers: the first one takes itself for the leader in a former epoch, and its log ends before the offset."""

    def __init__(self, *, newest_has_it):
        self.newest_has_it = newest_has_it
        self.brokers = []
        self.fetched = []

    def answer(self, number):
        async def answer(header, message):
            versions = answer_versions(header, SERVED)
            if versions is not None:
                return versions
            fields = decode(header.api_key, header.api_version, Direction.REQUEST, message)
            made = {
                ApiKey.METADATA: self.metadata,
                ApiKey.FETCH: self.fetch,
                ApiKey.LIST_OFFSETS: self.list_offsets,
            }[ApiKey(header.api_key)](number, fields)
            return answer_frame(header, encode(header.api_key, header.api_version, Direction.RESPONSE, made))

        return answer

    def metadata(self, number, _):
        epoch = FORMER_EPOCH if number == 0 else NEWEST_EPOCH
        brokers = [
            {"node_id": index, "host": one.address.host, "port": one.address.port, "rack": None}
            for index, one in enumerate(self.brokers)
        ]
        partition = {"error_code": 0, "partition_index": 0, "leader_id": number, "leader_epoch": epoch}
        partition |= {"replica_nodes": (0, 1), "isr_nodes": (0, 1), "offline_replicas": ()}
        topic = {"error_code": 0, "name": TOPIC, "is_internal": False, "partitions": [partition]}
        return {"throttle_time": 0, "brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": [topic]}

    def fetch(self, number, fields):
        [asked] = fields.topics[0].partitions
        self.fetched.append((number, asked.fetch_offset, asked.current_leader_epoch))
        is_there = asked.fetch_offset == EARLIEST or (number == 1 and self.newest_has_it)
        records = encode_batch([NewRecord(b"value")], base_offset=asked.fetch_offset) if is_there else b""
        partition = {"partition_index": 0, "high_watermark": 0, "last_stable_offset": 0, "log_start_offset": 0}
        partition |= {"error_code": 0 if is_there else ErrorCode.OFFSET_OUT_OF_RANGE, "aborted_transactions": ()}
        partition |= {"preferred_read_replica": -1, "records": records}
        responses = [{"topic": TOPIC, "partitions": [partition]}]
        return {"error_code": 0, "session_id": 0, "responses": responses, "throttle_time": 0}

    def list_offsets(self, number, _):
        partition = {"partition_index": 0, "error_code": 0, "timestamp": -1, "offset": EARLIEST, "leader_epoch": number}
        return {"throttle_time": 0, "topics": [{"name": TOPIC, "partitions": [partition]}]}

    async def first_chunk(self):
        """What the first chunk of a feed that begins at OFFSET is."""
        async with contextlib.AsyncExitStack() as stack:
            for number in (0, 1):
                self.brokers.append(await stack.enter_async_context(ScriptedBroker(self.answer(number))))
            properties = {"group.id": "g", "zookeeper.connect": "unused:1", "auto.offset.reset": "smallest"}
            config = ConsumerConfig.from_properties(properties)
            fetchers = Fetchers(config, lambda: str(self.brokers[0].address), SystemClock())
            feed = Feed(Partition(TOPIC, 0), None, Stream(), OFFSET)
            fetchers.start()
            fetchers.add([feed])
            try:
                return await asyncio.to_thread(feed.stream.chunks.get, timeout=TIMEOUT_S)
            finally:
                feed.stop()
                await asyncio.to_thread(fetchers.close)


def test_a_leader_that_is_cut_off_does_not_make_a_consumer_begin_again():
    cluster = Cluster(newest_has_it=True)
    chunk = asyncio.run(cluster.first_chunk())
    assert chunk.next_offset == OFFSET + 1
    assert cluster.fetched[:2] == [(0, OFFSET, -1), (1, OFFSET, NEWEST_EPOCH)]


def test_what_the_newest_leader_does_not_have_is_out_of_range():
    cluster = Cluster(newest_has_it=False)
    chunk = asyncio.run(cluster.first_chunk())
    assert chunk.next_offset == EARLIEST + 1
    assert cluster.fetched[1] == (1, OFFSET, NEWEST_EPOCH)
