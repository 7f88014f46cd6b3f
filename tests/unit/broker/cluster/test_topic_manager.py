"""Topics that the store has and this broker does not see yet: whoever asked waits as long as it wants to, no longer."""

import asyncio
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from random import Random, randrange
from uuid import uuid4

import pytest

from millrace.errors import MetadataTimeoutError
from millrace.fs import OsFileSystem
from millrace_broker.cluster.local_store import LocalStore
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.cluster.topic_manager import TopicManager
from millrace_broker.properties.broker_config import BrokerConfig

AT_ONCE = timedelta(0)
LONG = timedelta(minutes=5)


@contextmanager
def store_with_a_broker(folder, on_change):
    store = LocalStore(OsFileSystem(), str(folder))
    store.start(on_change)
    store.register_broker(BrokerInfo(1, "127.0.0.1", 9092, None))
    try:
        yield store
    finally:
        store.close()


def manager_of(store, metadata, random_below=randrange):
    return TopicManager(BrokerConfig.from_properties({}), store, metadata, lambda _: None, random_below)


def test_topics_of_one_partition_spread_over_the_brokers(tmp_path):
    brokers = {number: BrokerInfo(number, "127.0.0.1", 9090 + number) for number in (1, 2, 3)}

    async def run(store):
        topics = manager_of(store, MetadataCache(MetadataImage("c", 1, brokers, {})), Random(14).randrange)
        return [await topics.create(f"t{number}", partitions=1, validate_only=True) for number in range(300)]

    with store_with_a_broker(tmp_path, lambda _: None) as store:
        leaders = Counter(topic.partitions[0].leader for topic in asyncio.run(run(store)))
    assert set(leaders) == {1, 2, 3}
    assert min(leaders.values()) >= 60


def test_who_does_not_want_to_wait_is_told_that_the_change_may_come_later(tmp_path):
    async def run(store):
        metadata = MetadataCache(store.image())
        topics = manager_of(store, metadata)
        with pytest.raises(MetadataTimeoutError, match="topic events was created but is not seen yet"):
            await topics.create("events", within=AT_ONCE)
        metadata.update(store.image())
        with pytest.raises(
            MetadataTimeoutError, match="topic events was extended but its new partitions are not seen yet"
        ):
            await topics.create_partitions("events", 3, within=AT_ONCE)
        with pytest.raises(MetadataTimeoutError, match="topic events was deleted but is still seen"):
            await topics.delete("events", within=AT_ONCE)

    with store_with_a_broker(tmp_path, lambda _: None) as store:
        asyncio.run(run(store))


def test_who_waits_goes_on_as_soon_as_it_is_seen(tmp_path):
    async def run():
        images = asyncio.Queue()
        loop = asyncio.get_running_loop()
        with store_with_a_broker(tmp_path, lambda image: loop.call_soon_threadsafe(images.put_nowait, image)) as store:
            metadata = MetadataCache(store.image())
            creating = asyncio.create_task(manager_of(store, metadata).create("events", partitions=2, within=LONG))
            while "events" not in (image := await images.get()).topics:
                pass
            assert not creating.done()
            metadata.update(image)
            assert len((await creating).partitions) == 2

    asyncio.run(run())


def test_a_topic_is_gone_though_another_of_its_name_is_there_at_once(tmp_path):
    async def run(store):
        metadata = MetadataCache(store.image())
        topics = manager_of(store, metadata)
        old = store.image().topics["events"]
        delete_topic = store.delete_topic

        def delete_and_make_anew(name):
            delete_topic(name)
            store.create_topic(replace(old, topic_id=uuid4()))
            metadata.update(store.image())

        store.delete_topic = delete_and_make_anew
        assert await topics.delete("events", within=AT_ONCE) == old

    with store_with_a_broker(tmp_path, lambda _: None) as store:
        store.create_topic(TopicInfo("events", uuid4(), (PartitionInfo(0, 1, 0, (1,), (1,)),), {}))
        asyncio.run(run(store))
