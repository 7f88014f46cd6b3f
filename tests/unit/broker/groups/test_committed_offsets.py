"""Which committed offsets may be forgotten (KIP-211), and the store that holds them."""

import pytest

from millrace.wire.encoder import Encoder
from millrace_broker.groups.classic.classic_group import ClassicGroup
from millrace_broker.groups.offsets import Offsets, expired
from millrace_broker.groups.records import CommittedOffset, OffsetKey, StoredGroup, StoredMember
from millrace_broker.properties.coordinator_config import GroupConfig

DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS
NOW_MS = 1_700_000_000_000
KEY = OffsetKey("g", "t", 0)


def subscription(*topics):
    out = Encoder(flexible=False)
    out.int16(1)
    out.array_length(len(topics))
    for topic in topics:
        out.string(topic)
    return b"".join(out.parts)


SUBSCRIPTION = subscription("t")


def group(*, protocol_type="consumer", members=(), since_days=0, metadata=SUBSCRIPTION):
    kept = tuple(StoredMember(name, None, "c", "/h", 1, 1, metadata, b"") for name in members)
    leader = members[0] if members else None
    stored = StoredGroup(protocol_type, 1, "range", leader, NOW_MS - since_days * DAY_MS, kept)
    return ClassicGroup.of("g", stored, GroupConfig(), NOW_MS)


def offsets(*, days, topic="t", expires_days=None):
    store = Offsets()
    expiry = -1 if expires_days is None else NOW_MS - int(expires_days * DAY_MS)
    store.put(OffsetKey("g", topic, 0), CommittedOffset(1, -1, "", NOW_MS - days * DAY_MS, expiry))
    return store


@pytest.mark.parametrize(
    ("case", "of_group", "store", "goes"),
    [
        ("simple consumer, fresh", group(protocol_type=""), offsets(days=6), False),
        ("simple consumer, old", group(protocol_type=""), offsets(days=7), True),
        ("empty since long", group(since_days=7), offsets(days=8), True),
        ("empty since lately, committed long ago", group(since_days=1), offsets(days=30), False),
        ("with members, subscribed", group(members=("m",)), offsets(days=30), False),
        ("with members, subscribed no more", group(members=("m",)), offsets(days=30, topic="u"), True),
        ("with members, unsubscribed lately", group(members=("m",)), offsets(days=1, topic="u"), False),
        ("with members of unknown subscription", group(members=("m",), metadata=b"?"), offsets(days=30), False),
        ("connectors", group(members=("m",), protocol_type="connect"), offsets(days=30), False),
        ("its own expiry, over", group(protocol_type=""), offsets(days=0, expires_days=0), True),
        ("its own expiry, to come", group(protocol_type=""), offsets(days=30, expires_days=-1), False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_offsets_expire_by_the_rules(case, of_group, store, goes):
    found = expired(of_group, store, retention_ms=RETENTION_MS, now_ms=NOW_MS)
    assert bool(found) is goes


def test_an_offset_that_is_pending_does_not_expire():
    store = offsets(days=30)
    store.begin(KEY)
    assert expired(group(protocol_type=""), store, retention_ms=RETENTION_MS, now_ms=NOW_MS) == []
    store.end(KEY)
    assert expired(group(protocol_type=""), store, retention_ms=RETENTION_MS, now_ms=NOW_MS) == [KEY]


def test_the_store_knows_offsets_by_group_and_by_topic():
    store = Offsets()
    keys = [OffsetKey(name, topic, index) for name in "ab" for topic in "tu" for index in (0, 1)]
    for number, key in enumerate(keys):
        store.put(key, CommittedOffset(number))
    store.put(keys[0], CommittedOffset(100))
    assert store.count == 8
    assert store.keys_of("a") == keys[:4]
    assert store.keys_of_topics(["u", "v"]) == [key for key in keys if key.topic == "u"]
    for key in keys[:4]:
        store.remove(key)
        store.remove(key)
    assert (store.count, store.of_group("a"), store.get(keys[0])) == (4, {}, None)
    assert store.get(keys[4]) == CommittedOffset(4)
