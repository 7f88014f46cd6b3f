"""Copying with a target whose transactions fail: whatever goes wrong, each committed record is there once, in order."""

import math
from concurrent.futures import Future
from itertools import accumulate
from random import Random

import pytest

from millrace.client.fetched import AbortedTransaction, FetchedData
from millrace.client.groups import GroupMetadata, GroupOffset
from millrace.client.log_offsets import LogOffsets
from millrace.client.producer.batch import DeliveryReport
from millrace.client.producer.transaction_errors import (
    FatalTransactionError,
    TransactionAbortedError,
    TransactionFailedError,
    TransactionTimeoutError,
)
from millrace.errors import BrokerError, DeliveryTimeoutError, ErrorCode, NotLeaderError
from millrace.records.batch import TRANSACTIONAL_FLAG, placed, read_header
from millrace.records.control import ControlType, EndTransactionMarker, encode_marker
from millrace.records.record import BatchProducer, NewRecord, decode_records, encode_batch
from millrace_pipelines.mirror.copying import CopyDoors, Copying, TransactionBounds
from millrace_pipelines.mirror.counters import Counters
from millrace_pipelines.mirror.loops import Begin, Surroundings
from millrace_pipelines.mirror.offset_map import OffsetMap, decode_runs
from millrace_pipelines.mirror.offset_map_topic import OFFSET_MAP_TOPIC, decode_key
from millrace_pipelines.mirror.pauses import Throttle
from millrace_pipelines.mirror.stops import Mirrored
from millrace_pipelines.mirror.transaction import Transaction

WHAT = [Mirrored("t", "east.t", 0), Mirrored("t", "east.t", 1), Mirrored("u", "east.u", 0)]
GROUP = "millrace-mirror-east"


class Clock:
    """A clock that goes on at each look, so that no pause lasts."""

    def __init__(self):
        self.at_s = 0.0

    def monotonic_s(self):
        self.at_s += 0.5
        return self.at_s


class Source:
    """The source's partition: batches, of which some are aborted, and markers."""

    def __init__(self, random):
        self.random = random
        self.batches = []
        self.aborted = []
        self.committed_values = []
        self.end = 0

    def write(self):
        values = [self.random.randbytes(4) for _ in range(self.random.randrange(1, 4))]
        records = [NewRecord(one, b"k", 1000) for one in values]
        fate = self.random.randrange(4)
        if fate:
            self._add(encode_batch(records))
            self.committed_values += values
            return
        producer_id = self.random.randrange(3)
        first = self.end
        self._add(encode_batch(records, producer=BatchProducer(producer_id, 0, 0), flags=TRANSACTIONAL_FLAG))
        kind = self.random.choice([ControlType.ABORT, ControlType.COMMIT])
        self._add(
            encode_marker(EndTransactionMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=0)
        )
        if kind is ControlType.ABORT:
            self.aborted.append((producer_id, first, self.end))
        else:
            self.committed_values += values

    def read(self, offset):
        here = [data for base, data in self.batches if base + read_header(data).last_offset_delta >= offset]
        return self._answer(offset, here[: self.random.randrange(1, 4)])

    def read_all(self, offset, size_bytes):
        """Returns as much as a broker does: whole batches up to a size, but at least one."""
        here = [data for base, data in self.batches if base + read_header(data).last_offset_delta >= offset]
        ends = accumulate(len(data) for data in here)
        return self._answer(
            offset, [data for data, end in zip(here, ends, strict=True) if end <= size_bytes] or here[:1]
        )

    def _answer(self, offset, here):
        end = offset if not here else read_header(here[-1]).next_offset
        aborted = tuple(
            AbortedTransaction(one, first) for one, first, last in self.aborted if first < end and last > offset
        )
        return FetchedData(b"".join(here), self.end, self.end, 0, aborted, offset)

    def _add(self, data):
        header = read_header(data)
        self.batches.append((self.end, placed(header, self.end, 0) + data[16:]))
        self.end += header.last_offset_delta + 1


class Target:
    """The target: logs of entries by transaction, and the group's offsets and generation."""

    def __init__(self):
        self.logs = {one.at_target: [] for one in WHAT} | {(OFFSET_MAP_TOPIC, index): [] for index in range(16)}
        self.ends = dict.fromkeys(self.logs, 0)
        self.abandoned = set()  # the transactional ids of producers that have ended
        self.fate = {}  # by transaction: None while it is open
        self.open = {}  # by transactional id
        self.offsets = {}
        self.pending = {}
        self.generation = 1
        self.transactions = 0

    def begin(self, transactional_id):
        self.transactions += 1
        self.open[transactional_id] = self.transactions
        self.fate[self.transactions] = None
        self.pending[self.transactions] = {}

    def append(self, place, values, transaction):
        base = self.ends[place]
        self.logs[place].append((base, values, transaction))
        self.ends[place] += len(values)
        return base

    def end(self, transactional_id, *, commit):
        transaction = self.open.pop(transactional_id, None)
        if transaction is None:
            return
        self.fate[transaction] = commit
        pending = self.pending.pop(transaction)
        if commit:
            self.offsets |= pending
        for place, log in self.logs.items():
            if log and log[-1][2] == transaction:
                self.ends[place] += 1  # the marker

    def time_out(self):
        """Aborts what producers that have ended have left open, as its coordinator does after a time."""
        for transactional_id in self.abandoned:
            self.end(transactional_id, commit=False)

    def read(self, place):
        return [(base, values) for base, values, transaction in self.logs[place] if self.fate[transaction]]

    def stable(self, places):
        if any(place in pending for pending in self.pending.values() for place in places):
            raise BrokerError(ErrorCode.UNSTABLE_OFFSET_COMMIT, "not stable")
        return {place: self.offsets.get(place, GroupOffset(-1, "")) for place in places}


class Delivery:
    """A report that is there."""

    def __init__(self, place, offset, error):
        self._report = DeliveryReport(*place, offset, 0, error)
        self.is_awaited = False

    def done(self):
        return True

    def report(self, timeout_s=None):
        return self._report

    def result(self, timeout_s=None):
        self.is_awaited = True
        if self._report.error is not None:
            raise self._report.error
        return self._report


class Producer:
    """A transactional producer, whose calls fail now and then as those of a real one do."""

    def __init__(self, world, name):
        self.world, self.target, self.name = world, world.target, name
        self.has_failed = False
        self.decided = None

    def init_transactions(self):
        self.target.abandoned.discard(self.name)
        self.target.end(self.name, commit=False)

    def begin_transaction(self):
        self.has_failed, self.decided, self.taken, self.added = False, None, 0, set()
        self.sent = []
        self.target.begin(self.name)

    def add_to_transaction(self, partitions):
        self.added |= set(partitions)
        if denied := {topic for topic, _ in self.added} & self.world.denied:
            self.has_failed = True
            cause = BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"partition {denied.pop()}-0")
            raise TransactionFailedError("failed") from cause
        if self.world.fails():
            self.has_failed = True
            raise TransactionFailedError("failed") from BrokerError(ErrorCode.REQUEST_TIMED_OUT, "late")

    def _send(self, place, values):
        assert place in self.added, "it is named before"
        if self.has_failed:
            return Delivery(place, -1, TransactionAbortedError("the transaction has failed"))
        if place in self.world.refusing:
            self.has_failed = True
            return Delivery(place, -1, BrokerError(ErrorCode.POLICY_VIOLATION, "never"))
        self.taken += 1
        if self.world.fails() or self.taken > self.world.takes:
            self.has_failed = True
            return Delivery(place, -1, DeliveryTimeoutError("not in time"))
        offset = self.target.append(place, values, self.target.open[self.name])
        return Delivery(place, -1 if self.world.fails() else offset, None)

    def send_batch(self, topic, partition, batch):
        self.sent.append(self._send((topic, partition), [one.value for one in decode_records(batch)]))
        return self.sent[-1]

    def send(self, topic, value=None, key=None, *, partition=None):
        return self._send((topic, partition), [(key, value)])

    def send_offsets_to_transaction(self, offsets, group):
        assert all(one.is_awaited for one in self.sent), "no batch is under way beside the progress"
        if self.has_failed:
            raise TransactionFailedError("failed before")
        if group.generation_id != self.target.generation:
            self.has_failed = True
            raise TransactionFailedError("fenced") from BrokerError(ErrorCode.ILLEGAL_GENERATION, "old")
        if self.world.fails():
            self.has_failed = True
            raise TransactionFailedError("failed") from BrokerError(ErrorCode.REQUEST_TIMED_OUT, "late")
        self.target.pending[self.target.open[self.name]] |= offsets

    def commit_transaction(self):
        if self.has_failed:
            raise TransactionFailedError("failed before")
        fate = self.world.random.random() if self.world.faults else 1
        if fate < 0.1:  # the answer is lost, and whether it counts is not known
            if self.world.random.random() < 0.5:
                self.target.end(self.name, commit=True)
            raise TransactionTimeoutError("no answer")
        if fate < 0.15:
            self.target.end(self.name, commit=self.world.random.random() < 0.5)
            raise FatalTransactionError("the coordinator has ended it")
        self.target.end(self.name, commit=True)

    def abort_transaction(self):
        if self.world.fails():
            raise (
                FatalTransactionError("fenced") if self.world.random.random() < 0.3 else TransactionTimeoutError("late")
            )
        self.target.end(self.name, commit=False)
        self.has_failed = False

    def close(self):
        self.target.abandoned.add(self.name)


class World:
    """A source, a target, and two instances that share the partitions."""

    def __init__(self, seed, most_bytes=200):
        self.random = Random(seed)
        self.source = {one.at_source: Source(self.random) for one in WHAT}
        self.target = Target()
        self.faults = True
        self.takes = math.inf  # batches that the target takes in time in one transaction
        self.refusing = set()
        self.denied = set()
        self.told = []
        self.instances = {name: self._instance(name, most_bytes) for name in ("one", "two")}
        self.share()

    def fails(self):
        return self.faults and self.random.random() < 0.08

    def share(self):
        """A rebalance: each partition has another owner, perhaps; an instance may learn of it late, or not at all."""
        self.target.generation += 1
        owners = {one: self.random.choice(["one", "two"]) for one in WHAT}
        for name, copying in self.instances.items():
            if self.faults and self.random.random() < 0.2:
                continue
            group = GroupMetadata(GROUP, self.target.generation, name)
            copying.assign({one: Begin() for one in WHAT if owners[one] == name}, group)

    def fetch(self, offsets, bounds):
        if self.takes < math.inf:
            size = bounds.answer_bytes // len(offsets)
            return {place: self.source[place].read_all(offset, size) for place, offset in offsets.items()}
        return {
            place: NotLeaderError("moved") if self.fails() else self.source[place].read(offset)
            for place, offset in offsets.items()
        }

    def looks(self, ends):
        world = self

        class Looks:
            def ends(self, places):
                return {one: NotLeaderError("moved") if world.fails() else LogOffsets(0, ends(one)) for one in places}

            def topic_ids(self, topics):
                return dict.fromkeys(topics)

        return Looks()

    def _instance(self, name, most_bytes):
        def at_once(work):
            done = Future()
            done.set_result(work())
            return done

        doors = CopyDoors(
            fetches=self,
            source=self.looks(lambda place: self.source[place].end),
            epoch_end=lambda place, epoch: None,
            target=self.looks(lambda place: self.target.ends[place]),
            progress=lambda places: self.target.stable(list(places)),
            transaction=Transaction("east", lambda: Producer(self, name), Clock(), lambda: False),
            check_gap=lambda what, gap: pytest.fail(f"{what} has no gap"),
        )
        around = Surroundings(Counters(), self.told.append, Clock(), Throttle(0))
        bounds = TransactionBounds(0.1, most_bytes)
        return Copying("east", doors, around, at_once, bounds=bounds, rejoin=lambda: None)


def check(world, what):
    source, place = world.source[what.at_source], what.at_target
    values = [one for _, some in world.target.read(place) for one in some]
    assert values == source.committed_values
    mapped = OffsetMap()
    for index in range(16):
        for _, entries in world.target.read((OFFSET_MAP_TOPIC, index)):
            for key, value in entries:
                if decode_key(key)[1:3] == what[::2]:
                    mapped.go_on(decode_runs(value))
    at_target = {base + index: one for base, some in world.target.read(place) for index, one in enumerate(some)}
    at_source = {record.offset: record.value for _, data in source.batches for record in decode_records(data)}
    for run in mapped:
        for index in range(run.length):
            assert at_target.pop(run.target + index) == at_source[run.source + index]
    assert at_target == {}


@pytest.mark.parametrize("seed", range(200))
def test_what_goes_wrong_neither_loses_nor_doubles(seed):
    world = World(seed)
    for _ in range(150):
        world.random.choice(list(world.source.values())).write()
        if world.random.random() < 0.05:
            world.share()
        world.random.choice(list(world.instances.values())).go_round()
    world.faults = False
    world.target.time_out()
    world.share()
    for _ in range(60):
        for copying in world.instances.values():
            copying.go_round()
    assert [one for one in world.told if "it is tried again" not in one and "it works again" not in one] == []
    for what in WHAT:
        check(world, what)


def test_a_partition_that_the_target_refuses_stops_alone():
    world = World(1)
    world.faults = False
    world.share()
    world.refusing.add(("east.t", 1))
    for _ in range(30):
        for log in world.source.values():
            log.write()
        for copying in world.instances.values():
            copying.go_round()
    for _ in range(10):
        for copying in world.instances.values():
            copying.go_round()
    assert [one for one in world.told if "t-1: the target refuses to take records" in one]
    check(world, WHAT[0])
    check(world, WHAT[2])
    assert world.target.read(("east.t", 1)) == []


def go_round(world, times, *, writes=False):
    for _ in range(times):
        for log in world.source.values() if writes else ():
            log.write()
        for copying in world.instances.values():
            copying.go_round()


@pytest.mark.parametrize("denied", [{"east.t"}, {"east.u"}, {"east.t", "east.u"}])
def test_a_right_that_is_lacking_holds_up_no_other_topic_and_is_waited_for(denied):
    world = World(1)
    world.faults = False
    world.share()
    world.denied |= denied
    go_round(world, 30, writes=True)
    go_round(world, 40)
    for what in WHAT:
        if what.target in denied:
            assert world.target.read(what.at_target) == []
        else:
            check(world, what)
    for name in denied:
        told = [one for one in world.told if f"lacks the right Write on topic {name}" in one]
        assert 1 <= len(told) <= len(world.instances)
    assert not [one for one in world.told if "it works again" in one]
    world.denied.clear()
    go_round(world, 60)
    for what in WHAT:
        check(world, what)
    assert {name for name in denied if f"topic {name}: it works again" in world.told} == denied


def test_without_the_right_to_write_offset_maps_all_waits_for_it():
    world = World(1)
    world.faults = False
    world.share()
    world.denied.add(OFFSET_MAP_TOPIC)
    go_round(world, 20, writes=True)
    assert any(f"lacks the right Write on topic {OFFSET_MAP_TOPIC}" in one for one in world.told)
    assert not any("refuses" in one for one in world.told)
    world.denied.clear()
    go_round(world, 60)
    for what in WHAT:
        check(world, what)


def test_a_target_that_takes_little_in_time_gets_little_at_once():
    """Thousands of small batches wait at the source; a transaction of all of them would never be delivered."""
    world = World(1, most_bytes=16 << 20)
    world.faults, world.takes = False, 600
    for log in world.source.values():
        for _ in range(1000):
            log.write()
    world.share()
    for _ in range(200):
        for copying in world.instances.values():
            copying.go_round()
    for what in WHAT:
        check(world, what)
