"""LeaderAndIsr and StopReplica in every version: what reaches the roles, and how errors are told."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from uuid import UUID

import pytest

from millrace.errors import ErrorCode
from millrace.wire.messages import LEADER_AND_ISR, STOP_REPLICA
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.metadata_image import MetadataImage
from millrace_broker.handlers.api import Request
from millrace_broker.handlers.control_requests import leader_and_isr, stop_replica
from millrace_broker.replication.roles import ControllerFence, PartitionState, StopState
from millrace_broker.storage import TopicPartition

TOPIC_ID = UUID(int=7)
OWN_BROKER_EPOCH, CONTROLLER_EPOCH = 100, 5


class Roles:
    """Notes what it is asked for, and answers with an error for partition 1."""

    def __init__(self):
        self.asked = []

    def in_turn(self, work):
        return asyncio.ensure_future(work())

    async def become(self, states):
        self.asked += states
        return {one.topic_partition: 56 * ErrorCode(one.topic_partition.partition) for one in states}

    stop = become


def new_services():
    services = SimpleNamespace(
        roles=Roles(),
        fence=ControllerFence(lambda: OWN_BROKER_EPOCH),
        errors=Counter(),
        authorizer=None,
        metadata=MetadataCache(MetadataImage("id", 9, {}, {})),
    )
    services.fence.check(CONTROLLER_EPOCH, OWN_BROKER_EPOCH)
    return services


def asked(api, version, fields, broker_epoch=OWN_BROKER_EPOCH, controller_epoch=CONTROLLER_EPOCH):
    """Returns (what reached the roles, the answer, the errors that were counted)."""
    services = new_services()
    epochs = {"controller_id": 9, "controller_epoch": controller_epoch, "broker_epoch": broker_epoch}
    handle, messages = (leader_and_isr, LEADER_AND_ISR) if api == "LeaderAndIsr" else (stop_replica, STOP_REPLICA)
    body = messages.encode_request(version, {**epochs, **fields})

    async def handled():
        return await handle(services, Request(version, "c", memoryview(body)))

    answer = messages.decode_response(version, b"".join(asyncio.run(handled())))
    return services.roles.asked, answer, services.errors


def led(version):
    partitions = [
        {
            "topic_name": "t", "partition_index": index, "controller_epoch": 5, "leader": 1, "leader_epoch": 3,
            "isr": (1,), "partition_epoch": 4, "replicas": (1, 2), "adding_replicas": (), "removing_replicas": (),
        }
        for index in (0, 1)
    ]  # fmt: skip
    topic = {"topic_name": "t", "topic_id": TOPIC_ID, "partition_states": partitions}
    states = {"ungrouped_partition_states": partitions} if version < 2 else {"topic_states": [topic]}
    return {**states, "live_leaders": [], "type": 0}


def stopped(version):
    if version == 0:
        partitions = [{"topic_name": "t", "partition_index": index} for index in (0, 1)]
        return {"delete_partitions": True, "ungrouped_partitions": partitions}
    if version < 3:
        return {"delete_partitions": True, "topics": [{"name": "t", "partition_indexes": (0, 1)}]}
    partitions = [{"partition_index": index, "leader_epoch": 3, "delete_partition": index == 0} for index in (0, 1)]
    return {"topic_states": [{"topic_name": "t", "partition_states": partitions}]}


def codes(answer):
    """Returns the errors of an answer by partition, whatever its version."""
    grouped = [one for topic in getattr(answer, "topics", ()) for one in topic.partition_errors]
    return {one.partition_index: int(one.error_code) for one in (*answer.partition_errors, *grouped)}


@pytest.mark.parametrize("version", range(8))
def test_leader_and_isr(version):
    states, answer, errors = asked("LeaderAndIsr", version, led(version))
    topic_id = TOPIC_ID if version >= 5 else None
    assert states == [PartitionState(TopicPartition("t", index), topic_id, 1, 3, (1,), 4, (1, 2)) for index in (0, 1)]
    assert (answer.error_code, codes(answer)) == (0, {0: 0, 1: 56})
    assert errors == {(4, 56): 1}
    if version >= 5:
        assert [topic.topic_id for topic in answer.topics] == [TOPIC_ID]
    else:
        assert {one.topic_name for one in answer.partition_errors} == {"t"}


def test_who_waits_for_a_role_looks_again_once_it_is_taken_though_no_image_comes():
    """A controller that begins tells of the metadata first, so the image may be there before the roles are."""
    services, epochs = new_services(), {"controller_id": 9, "controller_epoch": 5, "broker_epoch": OWN_BROKER_EPOCH}
    body = LEADER_AND_ISR.encode_request(7, {**epochs, **led(7)})
    looks = []

    def has_role(_image):
        looks.append(len(services.roles.asked))
        return looks[-1] > 0

    async def waited():
        waiting = asyncio.create_task(services.metadata.until(has_role, timeout_s=30))
        await asyncio.sleep(0)
        await leader_and_isr(services, Request(7, "c", memoryview(body)))
        await waiting

    asyncio.run(waited())
    assert looks == [0, 2]


@pytest.mark.parametrize("version", range(5))
def test_stop_replica(version):
    states, answer, errors = asked("StopReplica", version, stopped(version))
    epoch = 3 if version >= 3 else -1
    assert states == [
        StopState(TopicPartition("t", index), epoch, deletes=version < 3 or index == 0) for index in (0, 1)
    ]
    assert (answer.error_code, codes(answer)) == (0, {0: 0, 1: 56})
    assert errors == {(5, 56): 1}


@pytest.mark.parametrize(
    ("epochs", "code"),
    [
        ({"broker_epoch": OWN_BROKER_EPOCH - 1}, ErrorCode.STALE_BROKER_EPOCH),
        ({"controller_epoch": CONTROLLER_EPOCH - 1}, ErrorCode.STALE_CONTROLLER_EPOCH),
    ],
)
def test_a_request_that_is_out_of_date_does_nothing(epochs, code):
    states, answer, _ = asked("LeaderAndIsr", 7, led(7), **epochs)
    assert (states, answer.error_code, codes(answer)) == ([], code, {0: code, 1: code})
    states, answer, _ = asked("StopReplica", 4, stopped(4), **epochs)
    assert (states, answer.error_code, codes(answer)) == ([], code, {})
