"""A broker that no controller has told of the cluster yet lets those who ask for metadata wait, but not for long."""

import asyncio
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

from millrace.wire.messages import METADATA
from millrace_broker.cluster import metadata_cache
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage
from millrace_broker.handlers import k03_metadata
from millrace_broker.handlers.api import Request

VERSION = 7
UNTOLD = MetadataImage("cluster", -1, {}, {})
TOLD = replace(UNTOLD, controller_id=1, brokers={1: BrokerInfo(1, "host", 9092, None)})


def asked(metadata):
    """The task that answers somebody who asks for all topics."""
    services = SimpleNamespace(metadata=metadata, errors=Counter(), authorizer=None)
    body = memoryview(METADATA.encode_request(VERSION, {"topics": None}))
    return k03_metadata.handle(services, Request(VERSION, "client", body))


def brokers_in(reply):
    return [one.node_id for one in METADATA.decode_response(VERSION, b"".join(map(bytes, reply))).brokers]


def test_the_answer_waits_for_brokers():
    async def ask():
        metadata = MetadataCache(UNTOLD)
        first, second = asked(metadata), asked(metadata)
        metadata.update(UNTOLD)
        await asyncio.sleep(0)
        assert not first.done()
        metadata.update(TOLD)
        return [brokers_in(await first), brokers_in(await second), brokers_in(asked(metadata))]

    assert asyncio.run(ask()) == [[1], [1], [1]]


def test_it_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(metadata_cache, "BROKERS_TIMEOUT_S", 0.0)

    async def ask():
        return brokers_in(await asked(MetadataCache(UNTOLD)))

    assert asyncio.run(ask()) == []
