"""The judge of `test_mirror_chaos.py` finds each difference that a test plants, and none between equal sides."""

import pytest
from mirror_judge import SHORTENED, Read, of_partition, read_all
from mirror_load import PARTITIONS

from millrace import Producer
from millrace.client import Admin, Cluster
from millrace.testing.broker import BrokerProcess

CREATED, APPENDED = 1, 2
FAR = 100


def record(number, key=b"k", *, is_gone=False, text=None, at=None, kind=CREATED):
    value = None if is_gone else text or b"%d" % number
    return Read(at or number, key, value, (("n", b"%d" % number),), (kind, 1000 + number))


SIDE = [record(number, b"%d" % (number % 3)) for number in range(1, 10)]
NEWEST_IS_GONE = [*SIDE, record(11, b"2", is_gone=True)]


def replaced(at, one):
    return [*SIDE[:at], one, *SIDE[at + 1 :]]


EQUAL = {
    "events": (SIDE, SIDE),
    "brief, deleted further at the source": (SIDE[3:], SIDE),
    "brief, deleted further at the target": (SIDE, SIDE[3:]),
    "brief, all deleted at the target": (SIDE, []),
    "brief, all deleted": ([], []),
    "table, compacted at the target": (SIDE, SIDE[5:]),
    "table, with a tombstone on one side": (NEWEST_IS_GONE, [one for one in SIDE[6:] if one.key != b"2"]),
}


@pytest.mark.parametrize("what", EQUAL)
def test_equal_sides_have_no_difference(what):
    topic, _, _ = what.partition(",")
    assert not list(of_partition(topic, *EQUAL[what], is_followed=True))


def test_a_stamped_record_that_is_sent_again_has_its_time():
    theirs = [one._replace(time=(APPENDED, one.time[1])) for one in SIDE]
    assert not list(of_partition("stamped", theirs, SIDE, is_followed=False))
    assert list(of_partition("stamped", theirs, SIDE, is_followed=True))


DIFFERENT = {
    "events, one lost": (SIDE, SIDE[:4] + SIDE[5:]),
    "events, the first lost": (SIDE, SIDE[1:]),
    "events, the last lost": (SIDE, SIDE[:-1]),
    "events, all lost": (SIDE, []),
    "events, one twice": (SIDE, [*SIDE, SIDE[4]]),
    "events, two in another order": (SIDE, [SIDE[1], SIDE[0], *SIDE[2:]]),
    "events, another value": (SIDE, replaced(4, record(5, b"2", text=b"other"))),
    "events, another key": (SIDE, replaced(4, record(5, b"other"))),
    "events, another time": (SIDE, replaced(4, SIDE[4]._replace(time=(CREATED, 7)))),
    "events, another kind of time": (SIDE, replaced(4, SIDE[4]._replace(time=(APPENDED, SIDE[4].time[1])))),
    "events, another header": (SIDE, replaced(4, SIDE[4]._replace(headers=(("n", b"5"), ("more", b""))))),
    "events, another offset": (SIDE, replaced(8, SIDE[8]._replace(offset=FAR))),
    "events, one that was never committed": ([*SIDE, record(11, text=b"doomed")], [*SIDE, record(11, text=b"doomed")]),
    "brief, one lost in the middle": (SIDE, SIDE[:4] + SIDE[5:]),
    "brief, the last lost": (SIDE, SIDE[:-1]),
    "table, an older value is newest": (SIDE, SIDE[:-1]),
    "table, a tombstone lost": (NEWEST_IS_GONE, SIDE),
    "table, another order": (SIDE, [SIDE[6], SIDE[5], *SIDE[7:]]),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_each_planted_difference_is_found(what):
    topic, _, _ = what.partition(",")
    assert list(of_partition(topic, *DIFFERENT[what], is_followed=True))


def test_reading_begins_again_where_the_beginning_is_deleted_before_it_is_read(tmp_path):
    with BrokerProcess(tmp_path) as broker, Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(SHORTENED, PARTITIONS)
        with Producer(broker_list=broker.bootstrap) as producer:
            for number in range(10):
                producer.send(SHORTENED, b"%d" % number, partition=number % PARTITIONS)
        Admin(cluster).delete_records(SHORTENED, 0, 3)
        found = read_all(broker.bootstrap, [SHORTENED], begin=0)
    assert [one.value for one in found[SHORTENED, 0]] == [b"6", b"8"]
    assert [one.value for one in found[SHORTENED, 1]] == [b"1", b"3", b"5", b"7", b"9"]
