"""Requests that arrive together are answered, and stored, as the same requests one by one.

Over settings of the topic, versions, kinds of producers, and what can be wrong with a batch.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.records.compression import Codec
from millrace_support.requests_together import IDEMPOTENT_IDS, ProducingBroker, Sender, Sent, Wanted

EVENTS, NOWHERE, INTERNAL = ("events", 0), ("nowhere", 0), ("__consumer_offsets", 0)
VERSIONS = (0, 1, 2, 3, 7, 9, 11, 12, 13)
TOGETHER = 12

CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "message.timestamp.type": st.sampled_from(("LogAppendTime", "LogAppendTime", "CreateTime")),
        "cleanup.policy": st.sampled_from(("compact", "compact,delete")),
        "max.message.bytes": st.sampled_from(("120", "300")),
        "segment.bytes": st.sampled_from(("200", "700")),
        "segment.ms": st.sampled_from(("1000", "20000")),
        "index.interval.bytes": st.just("0"),
        "segment.index.bytes": st.sampled_from(("24", "60")),
        "compression.type": st.sampled_from(("gzip", "uncompressed")),
        "message.timestamp.before.max.ms": st.just("5000"),
        "message.timestamp.after.max.ms": st.just("0"),
        "min.insync.replicas": st.sampled_from(("1", "2", "3")),
        "flush.messages": st.sampled_from(("1", "3")),
    },
)
BATCHES = st.builds(
    Sent,
    producer=st.sampled_from((-1, -1, -1, *IDEMPOTENT_IDS, 0, 0)),
    values=st.lists(st.sampled_from((0, 5, 90)), min_size=1, max_size=3),
    has_keys=st.sampled_from((True, True, True, False)),
    age_ms=st.sampled_from((0, 0, 0, 10_000, -10_000, None)),
    codec=st.sampled_from((Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP)),
    step=st.sampled_from((0, 0, 0, 0, 0, 0, -1, -2, 1)),
    damage=st.sampled_from(("",) * 12 + ("crc", "log append time", "base offset", "cut", "tail", "twice", "empty")),
)
PARTITIONS = st.tuples(st.sampled_from((EVENTS,) * 8 + (NOWHERE, INTERNAL)), BATCHES).map(lambda one: (*one[0], one[1]))
REQUESTS = st.builds(
    Wanted,
    acks=st.sampled_from((-1, -1, 1, 1, 1, 0, 7)),
    partitions=st.one_of(
        st.tuples(BATCHES).map(lambda one: [(*EVENTS, one[0])]), st.lists(PARTITIONS, min_size=1, max_size=3)
    ),
)
TURNS = st.one_of(
    st.tuples(st.sampled_from(VERSIONS), st.lists(REQUESTS, min_size=2, max_size=TOGETHER)),
    st.tuples(st.sampled_from(VERSIONS), st.lists(REQUESTS, min_size=2, max_size=TOGETHER)),
    st.sampled_from(("begin", "commit", "abort", "time passes")),
)


class BothWays:
    """Two brokers that get the same requests, one of them together."""

    def __init__(self, config: dict[str, str], *, has_follower: bool) -> None:
        self.sender = Sender()
        self.together, self.alone = (ProducingBroker(config, has_follower=has_follower) for _ in range(2))
        self.brokers = (self.together, self.alone)

    async def play(self, turn: Any) -> None:
        match turn:
            case "begin":
                one, other = [await broker.begin() for broker in self.brokers]
                assert one == other
                self.sender.transactional = one
            case "commit" | "abort":
                one, other = [
                    await each.end(self.sender.transactional, is_commit=turn == "commit") for each in self.brokers
                ]
                assert one == other
            case "time passes":
                for broker in self.brokers:
                    broker.home.clock.advance(3000)
            case version, wanted:
                await self.produce(version, wanted)

    async def produce(self, version: int, wanted: list[Wanted]) -> None:
        now_ms, topic_ids = self.alone.home.clock.now_ms(), self.alone.topic_ids
        bodies = [self.sender.request(version, one, now_ms, topic_ids) for one in wanted]
        answers = await self.alone.one_by_one(version, bodies)
        assert await self.together.together(version, bodies) == answers
        one, other = self.together.stored(), self.alone.stored()
        assert {name: (one[name], other[name]) for name in one if one[name] != other[name]} == {}

    def close(self) -> None:
        for broker in self.brokers:
            broker.home.close()


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner() as runner:
        runner.run(work)


async def compare(config: dict[str, str], turns: list[Any], *, has_follower: bool) -> None:
    both = BothWays(config, has_follower=has_follower)
    for turn in ("begin", *turns):
        await both.play(turn)
    both.close()


@given(CONFIGS, st.booleans(), st.lists(TURNS, min_size=1, max_size=6))
@settings(max_examples=200)
def test_requests_fare_alike_together_and_one_by_one(
    config: dict[str, str], has_follower: bool, turns: list[Any]
) -> None:
    run(compare(config, turns, has_follower=has_follower))


@pytest.mark.parametrize("time", ["LogAppendTime", "CreateTime"])
@pytest.mark.parametrize("producer", [-1, IDEMPOTENT_IDS[0], 0])
@pytest.mark.parametrize("version", VERSIONS)
def test_small_batches_that_begin_a_log_are_taken(version: int, producer: int, time: str) -> None:
    """As a producer sends them whose batches have one message each: the first ones come before there is a segment."""

    async def look() -> None:
        both = BothWays({"message.timestamp.type": time}, has_follower=False)
        await both.play("begin")
        await both.play((version, [Wanted(1, [(*EVENTS, Sent(producer))])] * 20))
        assert both.together.partition.log.log_end_offset == 20
        both.close()

    run(look())
