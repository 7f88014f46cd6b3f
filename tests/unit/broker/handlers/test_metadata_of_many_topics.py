"""Metadata of all topics, where they are many: the same answer, made in turns, between which others have theirs."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from uuid import UUID

import pytest

from millrace.addresses import Endpoint
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.messages import METADATA
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.handlers import k03_metadata
from millrace_broker.handlers.api import InTurns, Request
from millrace_broker.net.long_requests import TURN_S, LongRequests
from millrace_broker.security.client_session import ClientSession

LISTENER = "PLAINTEXT"
LOOKS_IN_A_TURN = 50
NAMES = [f"topic-{number}" for number in range(3 * k03_metadata.TOPICS_AT_ONCE + 1)]
BROKER = BrokerInfo.of(1, [Endpoint(LISTENER, "PLAINTEXT", "h", 1)], rack=None)
TOPICS = {
    name: TopicInfo(name, UUID(int=number + 1), (PartitionInfo(0, 1, 5, (1, 2), (1,)),), {})
    for number, name in enumerate(NAMES)
}
VIEW = MetadataImage("cluster", 1, {1: BROKER}, TOPICS)


class HurryingClock:
    """A clock by which a turn is over after so many looks at it."""

    def __init__(self):
        self._now_s = 0.0

    def monotonic_s(self):
        self._now_s += TURN_S / LOOKS_IN_A_TURN
        return self._now_s


def asked(version, topics):
    """(the bytes of the answer, how often others had their turn meanwhile, the errors that were counted)."""
    services = SimpleNamespace(
        metadata=MetadataCache(VIEW),
        errors=Counter(),
        authorizer=None,
        config=SimpleNamespace(auto_create_topics_enable=False),
    )
    fields = {
        "topics": topics,
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    body = memoryview(METADATA.encode_request(version, fields))

    async def answer():
        turns = 0
        reply = k03_metadata.handle(services, Request(version, "c", body, ClientSession("h", LISTENER)))
        if isinstance(reply, InTurns):
            later = LongRequests(HurryingClock()).begin(reply.work, lambda: None)
            while not later.done():
                await asyncio.sleep(0)
                turns += 1
            reply = later.result()
        return b"".join(map(bytes, reply)), turns, services.errors

    return asyncio.run(answer())


@pytest.mark.parametrize("version", range(14))
def test_it_is_the_answer_to_all_names_in_turns(version):
    every = [{"name": name, "topic_id": NO_TOPIC_ID} for name in NAMES]
    found, turns, errors = asked(version, None if version else [])
    assert turns >= len(NAMES) // LOOKS_IN_A_TURN, "others have turns while topics are looked up and encoded"
    assert (found, 0, errors) == asked(version, every)
