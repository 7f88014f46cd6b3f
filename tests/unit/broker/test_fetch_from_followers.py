"""Consumers that read from followers (KIP-392): where a leader sends them, and what a follower answers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.errors import ErrorCode
from millrace.leader_states import NO_LEADER
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.wire.fetch import PartitionFetched
from millrace_broker.cluster.metadata_image import BrokerInfo
from millrace_broker.properties.broker_config import RACK_AWARE_SELECTOR
from millrace_broker.replication.roles import Leadership
from millrace_support.broker_with_followers import BATCH, FIRST, LEADER, Home, broker_with_followers, until

CONSUMER, TOOL = -1, -2
OTHER, EPOCH = 2, 9
Scene = Callable[[Home], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        async def whole() -> None:
            async with broker_with_followers(tmp_path) as home:
                await asyncio.wait_for(scene(home), 60)

        asyncio.run(whole())

    return run


def in_racks(home):
    """Puts the leader into rack a, and its followers 2 and 3 into rack b."""
    image = home.metadata.image
    others = {each: BrokerInfo(each, "127.0.0.1", 9000 + each, "b") for each in (2, 3)}
    me = replace(image.brokers[home.broker_id], rack="a")
    home.metadata.update(replace(image, brokers={home.broker_id: me, **others}))
    home.services.config = replace(home.services.config, replica_selector_class=RACK_AWARE_SELECTOR)


def test_a_leader_sends_a_consumer_to_the_follower_in_its_rack(play):
    async def scene(home):
        home.lead()
        in_racks(home)
        await home.produce(LEADER)
        home.fetched(1)
        sent = await home.fetch(0, CONSUMER, rack="b")
        assert (sent.preferred_read_replica, sent.records, sent.high_watermark) == (2, b"", 1)
        for rack in ("", "a", "c"):
            answer = await home.fetch(0, CONSUMER, rack=rack)
            assert (answer.preferred_read_replica, answer.records.count(b"value")) == (-1, 1), rack

    play(scene)


def test_no_consumer_is_sent_to_a_follower_that_is_not_in_sync_or_lacks_the_offset(play):
    async def scene(home):
        home.lead(isr=(2,))
        in_racks(home)
        for _ in range(2):
            await home.produce(LEADER)
        home.fetched(1)
        home.fetched(2, follower=3)  # is not in sync
        assert (await home.fetch(1, CONSUMER, rack="b", max_wait=0)).preferred_read_replica == 2
        assert (await home.fetch(2, CONSUMER, rack="b", max_wait=0)).preferred_read_replica == -1

    play(scene)


def test_followers_and_consumers_of_brokers_without_a_selector_stay(play):
    async def scene(home):
        home.lead()
        in_racks(home)
        await home.produce(LEADER)
        home.fetched(1)
        answer = await home.fetch(0, 2, rack="b")
        assert (answer.preferred_read_replica, answer.records.count(b"value")) == (-1, 1)
        home.services.config = replace(home.services.config, replica_selector_class="")
        assert (await home.fetch(0, CONSUMER, rack="b")).preferred_read_replica == -1

    play(scene)


def follow(home, leader=OTHER, epoch=EPOCH):
    image = home.metadata.image
    topic = image.topics[FIRST.topic]
    partitions = tuple(replace(one, leader=leader, leader_epoch=epoch) for one in topic.partitions)
    home.metadata.update(replace(image, topics={FIRST.topic: replace(topic, partitions=partitions)}))
    topic_id = topic.topic_id
    return home.replicas.follow(FIRST, topic_id, {}, leader=leader, leader_epoch=epoch)


def fetched(home, followed, high_watermark, records=b""):
    """Takes what the leader of a followed partition answers."""
    start = followed.log.log_start_offset
    followed.append(PartitionFetched(FIRST.partition, 0, high_watermark, high_watermark, start, records))
    home.replicas.purgatory.check(FIRST)


def batch(offset):
    data = bytearray(BATCH)
    data[:8] = offset.to_bytes(8, "big")
    data[12:16] = EPOCH.to_bytes(4, "big")  # not covered by the CRC
    return bytes(data)


def test_a_follower_serves_consumers_up_to_the_high_watermark_that_it_knows(play):
    async def scene(home):
        followed = follow(home)
        for offset in range(3):
            fetched(home, followed, 1, batch(offset))
        answer = await home.fetch(0, CONSUMER)
        assert (answer.error_code, answer.high_watermark, answer.records.count(b"value")) == (0, 1, 1)
        assert (await home.fetch(3, CONSUMER, max_wait=0)).error_code == 0, "it may be committed soon"
        assert (await home.fetch(4, CONSUMER)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await home.fetch(0, TOOL)).records.count(b"value") == 1

    play(scene)


def test_a_consumer_waits_at_a_follower_for_the_high_watermark(play):
    async def scene(home):
        followed = follow(home)
        fetched(home, followed, 0, batch(0))
        waiting = asyncio.ensure_future(home.fetch(0, CONSUMER, rack="b"))
        await until(lambda: len(home.replicas.purgatory) == 1)
        fetched(home, followed, 0, batch(1))
        assert len(home.replicas.purgatory) == 1
        fetched(home, followed, 2)
        assert (await waiting).records.count(b"value") == 2

    play(scene)


def test_a_consumer_that_waits_at_a_follower_hears_of_another_leader(play):
    async def scene(home):
        topic_id = follow(home).topic_id

        def lead():
            home.replicas.lead(FIRST, topic_id, {}, Leadership(EPOCH + 2, 0, (home.broker_id, 2), (home.broker_id,)))

        for change in (lambda: follow(home, epoch=EPOCH + 1), lead, lambda: home.replicas.forget(FIRST)):
            waiting = asyncio.ensure_future(home.fetch(0, CONSUMER))
            await until(lambda: len(home.replicas.purgatory) == 1)
            change()
            assert (await waiting).error_code != 0

    play(scene)


def test_who_may_not_read_from_a_follower(play):
    async def scene(home):
        followed = follow(home)
        fetched(home, followed, 1, batch(0))
        for wanted, code in (
            ({"replica_id": 3}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            ({"current_leader_epoch": NO_LEADER_EPOCH}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            ({"current_leader_epoch": NO_LEADER_EPOCH, "rack": "b"}, ErrorCode.NONE),
            ({"current_leader_epoch": EPOCH - 1}, ErrorCode.FENCED_LEADER_EPOCH),
            ({"current_leader_epoch": EPOCH + 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            assert (await home.fetch(0, **{"replica_id": CONSUMER, **wanted})).error_code == code, wanted
        follow(home, leader=NO_LEADER)
        assert (await home.fetch(0, CONSUMER, rack="b")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(scene)
