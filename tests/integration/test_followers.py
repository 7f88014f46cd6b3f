"""Followers that are killed at any moment: their logs become the leader's byte for byte."""

import asyncio
from itertools import pairwise
from random import Random
from uuid import UUID

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import LogManager, TopicPartition
from millrace_support.follower_process import LEADER_ID, FollowedTopic, FollowerProcess, batches_of
from millrace_support.leading_broker import LeadingBroker, LedLog
from millrace_support.scripted_broker import ScriptedBroker

KILLS = 4
EPOCH = 3
TOPIC = FollowedTopic("t", UUID(int=7), partitions=3, leader_epoch=EPOCH)
KEYS = [TopicPartition(TOPIC.name, index) for index in range(TOPIC.partitions)]


async def until(follower, holds):
    async with asyncio.timeout(120):
        ends = await asyncio.to_thread(follower.ends)
        while not holds(ends):
            ends = await asyncio.to_thread(follower.ends)
        return ends


def test_a_follower_that_is_killed_goes_on_where_its_log_ends(tmp_path):
    chance = Random(1)
    logs = LogManager(OsFileSystem(), SystemClock(), [str(tmp_path / "leader")], {}, "c" * 22, LEADER_ID)
    logs.start()
    led = [logs.create(key, TOPIC.topic_id, {"segment.bytes": "1000000"}) for key in KEYS]

    def append(count):
        for _ in range(count):
            records = [NewRecord(chance.randbytes(1000))] * chance.randint(1, 100)
            chance.choice(led).append(encode_batch(records), leader_epoch=EPOCH)

    async def scenario():
        leading = LeadingBroker([LedLog(log, TOPIC.topic_id, EPOCH) for log in led])
        async with ScriptedBroker(leading.answer) as broker:
            seen = [0]
            for _ in range(KILLS):
                append(60)
                with FollowerProcess(tmp_path / "follower", str(broker.address), TOPIC) as follower:
                    enough = seen[-1] + chance.choice([1, 100, 1000])
                    seen.append(sum(await until(follower, lambda ends, enough=enough: sum(ends) >= enough)))
            append(10)
            whole = [log.log_end_offset for log in led]
            with FollowerProcess(tmp_path / "follower", str(broker.address), TOPIC) as follower:
                await until(follower, lambda ends: ends == whole)
            assert all(before <= after for before, after in pairwise(seen)), "a killed process loses nothing"

    asyncio.run(scenario())
    for key in KEYS:
        assert batches_of(tmp_path / "follower", key) == batches_of(tmp_path / "leader", key)
    logs.close()
