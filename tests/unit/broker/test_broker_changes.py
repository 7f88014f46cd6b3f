"""A whole broker in the test's own event loop: what requests meet while it changes, or looks after its logs."""

import asyncio
import threading

import pytest

from millrace.clock import SystemClock
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, encode
from millrace_broker.admin.chores import Chore, repeat
from millrace_broker.broker import Broker
from millrace_broker.groups import commits
from millrace_broker.handlers.api import Request
from millrace_broker.handlers.offset_commits import commit as commit_offsets
from millrace_broker.security.client_session import ClientSession
from millrace_broker.startup.options import parse_options
from millrace_broker.storage import TopicPartition

EVENTS = TopicPartition("events", 0)
COMMIT = encode(
    ApiKey.OFFSET_COMMIT,
    8,
    Direction.REQUEST,
    {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [
            {
                "name": "events",
                "partitions": [
                    {
                        "partition_index": 0,
                        "committed_offset": 7,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                ],
            }
        ],
    },
)


@pytest.fixture
def play(tmp_path):
    """Run a scene on a broker."""

    def run(scene):
        async def whole():
            options = ["--standalone", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
            broker = Broker(parse_options([*options, "--set", "offsets.topic.num.partitions=1"]), SystemClock())
            await broker.start()
            try:
                await asyncio.wait_for(scene(broker), 120)
            finally:
                await broker.stop()

        asyncio.run(whole())

    return run


async def in_turn(work):
    """How often others had their turn while something was awaited."""
    turns, task = 0, asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return turns, task.result()


def test_requests_go_before_the_next_log_of_a_retention_pass(play):
    async def scene(broker):
        await broker._services.topics.create("events", partitions=50)
        turns, reports = await in_turn(broker._maintenance.apply_retention())
        assert len(reports) == 50
        assert turns >= 50

    play(scene)


class ForgetfulAuthorizer:
    """It can't take the first entries that it is told of."""

    def __init__(self):
        self.takes = 0
        self.has_taken = asyncio.Event()

    def take(self, _):
        self.takes += 1
        if self.takes == 1:
            raise LookupError("its own store is not there")
        self.has_taken.set()


def test_a_part_that_fails_once_keeps_a_topic_from_nobody_and_is_told_again(play, caplog):
    async def scene(broker):
        services = broker._services
        services.authorizer = authorizer = ForgetfulAuthorizer()
        await services.topics.create("events")
        assert "events" in services.metadata.image.topics
        assert broker._health().not_ready == (
            "a change of the cluster has no effect yet: access control: its own store is not there",
        )
        await authorizer.has_taken.wait()
        assert broker._health().not_ready == ()
        assert (authorizer.takes, broker._vitals.facts().failed_changes["access control"]) == (2, 1)
        [said] = [message for message in caplog.messages if "acted upon" in message]
        assert "access control: its own store is not there" in said

    play(scene)


def test_a_commit_while_its_topic_is_deleted_does_not_outlive_it(play):
    async def scene(broker):
        services, loop = broker._services, asyncio.get_running_loop()
        await services.topics.create("events")
        await services.groups.topic.create()
        is_deleting, goes_on = asyncio.Event(), threading.Event()
        delete_logs = services.replicas.logs.delete

        def delete_slowly(*topic_partitions):
            loop.call_soon_threadsafe(is_deleting.set)
            assert goes_on.wait(120)
            delete_logs(*topic_partitions)

        services.replicas.logs.delete = delete_slowly
        deleting = asyncio.ensure_future(services.topics.delete("events"))
        await is_deleting.wait()
        await commit_offsets(services, Request(8, "c", memoryview(COMMIT), ClientSession("127.0.0.1")))
        goes_on.set()
        await deleting
        await services.topics.create("events")
        _, (fetched,) = commits.fetch(services.groups, "g", [EVENTS])
        assert fetched.offset == -1

    play(scene)


def test_a_request_finds_what_the_one_before_it_has_committed(play):
    async def scene(broker):
        services = broker._services
        await services.topics.create("events")
        await services.groups.topic.create()
        answer = commit_offsets(services, Request(8, "c", memoryview(COMMIT), ClientSession("127.0.0.1")))
        _, (fetched,) = commits.fetch(services.groups, "g", [EVENTS])
        assert fetched.offset == 7
        await answer

    play(scene)


def test_maintenance_goes_on_whatever_happened(caplog):
    async def run():
        outcomes, again = [ValueError("what nobody thought of")], asyncio.Event()

        async def work():
            if outcomes:
                raise outcomes.pop()
            again.set()

        chore = asyncio.create_task(repeat(Chore(0, work)))
        await asyncio.wait_for(again.wait(), 120)
        chore.cancel()

    asyncio.run(run())
    assert "what nobody thought of" in caplog.text
