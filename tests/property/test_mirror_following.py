"""Following with doors that fail: whatever goes wrong, the target is what the source has, in one piece."""

from concurrent.futures import Future
from random import Random

import pytest

from millrace.client.fetched import FetchedData
from millrace.client.log_offsets import LogOffsets
from millrace.client.mirrored_appends import MirroredLog
from millrace.errors import AnswerLostError, NotLeaderError, OffsetOutOfRangeError
from millrace.records.batch import placed, read_header, walk
from millrace.records.record import NewRecord, encode_batch
from millrace_pipelines.mirror.counters import Counters
from millrace_pipelines.mirror.following import FollowDoors, Following
from millrace_pipelines.mirror.loops import Begin, Surroundings
from millrace_pipelines.mirror.pauses import Throttle
from millrace_pipelines.mirror.stops import Mirrored

WHAT = [Mirrored("t", "east.t", 0), Mirrored("t", "east.t", 1), Mirrored("u", "east.u", 0)]
LOST = AnswerLostError("no answer")


class Clock:
    """A clock that goes on by a second at each look, so that no pause lasts."""

    def __init__(self):
        self.at_s = 0.0

    def monotonic_s(self):
        self.at_s += 1.0
        return self.at_s


class Log:
    """A partition: batches by base offset, its start and its end, and how much of it is committed."""

    def __init__(self):
        self.batches = []
        self.start = self.end = self.committed = 0

    def write(self, data, base, epoch):
        header = read_header(data)
        self.batches.append((base, base + header.last_offset_delta + 1, placed(header, base, epoch) + data[16:]))
        self.end = self.batches[-1][1]

    def read(self, offset, count):
        if not self.start <= offset <= self.end:
            raise OffsetOutOfRangeError(f"no offset {offset}")
        here = [one for one in self.batches if one[1] > offset and one[1] <= self.committed]
        return b"".join(data for _, _, data in here[:count])

    def contents(self):
        return [(base, data[16:]) for base, _, data in self.batches]


class World:
    """A source and a target, whose doors fail now and then."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.source = {one.at_source: Log() for one in WHAT}
        self.target = {one.at_target: Log() for one in WHAT}
        self.epoch = 0
        self.faults = True

    def fails(self):
        return self.faults and self.random.random() < 0.15

    def live(self):
        """Writes to the source, and has other things happen there."""
        log = self.random.choice(list(self.source.values()))
        match self.random.randrange(8):
            case 0:
                self.epoch += 1
            case 1 if len(log.batches) > 3:  # compaction
                log.batches.pop(self.random.randrange(len(log.batches) - 2))
            case 2:
                log.committed = log.end
            case _:
                values = [self.random.randbytes(3) for _ in range(self.random.randrange(1, 4))]
                log.write(encode_batch([NewRecord(one) for one in values]), log.end, self.epoch)
        if self.random.random() < 0.7:
            log.committed = max(log.committed, log.end - self.random.randrange(3))
        for one in self.target.values():
            if self.random.random() < 0.7:
                one.committed = one.end

    def reads(self, logs):
        return type("Reads", (), {"fetch": lambda _, offsets, bounds=None: self.fetch(logs, offsets)})()

    def fetch(self, logs, offsets):
        found = {}
        for place, offset in offsets.items():
            log = logs[place]
            if self.fails():
                found[place] = NotLeaderError("moved")
                continue
            try:
                records = log.read(offset, self.random.randrange(1, 4))
            except OffsetOutOfRangeError as error:
                found[place] = error
            else:
                found[place] = FetchedData(records, log.committed, log.committed, log.start, (), offset)
        return found

    def looks(self, logs):
        world = self

        class Looks:
            def ends(self, partitions):
                return {
                    one: LOST if world.fails() else LogOffsets(logs[one].start, logs[one].committed)
                    for one in partitions
                }

            def topic_ids(self, topics):
                return dict.fromkeys(topics)

            def is_compacted(self, topic):
                return True

        return Looks()

    def append(self, appends):
        found = {}
        for topic, partition, end_offset, records, log_start_offset in appends:
            log = self.target[topic, partition]
            fate = self.random.random() if self.faults else 1
            if fate < 0.1:
                found[topic, partition] = MirroredLog(-1, -1, NotLeaderError("moved"))
                continue
            if end_offset == log.end:
                if not log.batches and log.end < log_start_offset:
                    log.start = log.end = log_start_offset
                for position, header in walk(records):
                    assert header.base_offset >= log.end
                    log.write(bytes(records[position : position + header.size_bytes]), header.base_offset, 0)
            if self.random.random() < 0.5:
                log.committed = log.end
            found[topic, partition] = MirroredLog(log.end, log.committed, LOST if fate < 0.2 else None)
        return found

    def instance(self):
        def at_once(work):
            done = Future()
            done.set_result(work())
            return done

        appends = type("Appends", (), {"append": lambda _, appends: self.append(appends)})()
        doors = FollowDoors(
            fetches=self.reads(self.source),
            source_records=self.reads(self.source),
            source=self.looks(self.source),
            target_records=self.reads(self.target),
            target=self.looks(self.target),
            appends=appends,
            check_gap=lambda what, gap: None,
        )
        told = []
        following = Following("east", doors, Surroundings(Counters(), told.append, Clock(), Throttle(0)), at_once)
        following.assign(dict.fromkeys(WHAT, Begin()))
        return following, told


def stops(told):
    return [one for one in told if "it is tried again" not in one and "it works again" not in one]


def is_whole(world):
    """Whether each target has all of the source that compaction has left, and otherwise only what the source had."""
    for what in WHAT:
        source, target = world.source[what.at_source], world.target[what.at_target]
        mirrored = dict(target.contents())
        assert len(mirrored) == len(target.contents())
        for base, data in source.contents():
            assert mirrored.get(base) == data, f"{what} at {base}"


@pytest.mark.parametrize("seed", range(150))
def test_what_goes_wrong_neither_loses_nor_doubles(seed):
    world = World(seed)
    instances = [world.instance(), world.instance()]
    for _ in range(120):
        world.live()
        following, told = world.random.choice(instances)
        following.go_round()
        assert stops(told) == []
    world.faults = False
    for log in (*world.source.values(), *world.target.values()):
        log.committed = log.end
    for _ in range(60):
        for following, told in instances:
            following.go_round()
            assert stops(told) == []
        for log in world.target.values():
            log.committed = log.end
    assert all(log.end for log in world.source.values())
    is_whole(world)
    assert {one.at_target: world.target[one.at_target].end for one in WHAT} == {
        one.at_target: world.source[one.at_source].end for one in WHAT
    }


def test_a_log_that_was_cut_is_seen():
    """The source loses its newest batches and gets others: the mirror stops, and appends none of them."""
    world = World(1)
    world.faults = False
    following, told = world.instance()
    log = world.source["t", 0]
    for value in b"abcdef":
        log.write(encode_batch([NewRecord(bytes([value]))]), log.end, 0)
    log.committed = log.end
    for _ in range(5):
        following.go_round()
    log.batches[-2:] = []
    log.end = 4
    for value in b"xyz":
        log.write(encode_batch([NewRecord(bytes([value]))]), log.end, 1)
    log.committed = log.end
    for one in world.target.values():
        one.committed = one.end
    for _ in range(5):
        following.go_round()
    assert [one for one in told if "t-0: the source's log was cut" in one]
    assert world.target["east.t", 0].end == 6
