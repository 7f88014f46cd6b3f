"""ControlledShutdown, AlterPartition and AllocateProducerIds, by a controller that answers what the test says."""

import asyncio
from collections import Counter
from concurrent.futures import Future
from types import SimpleNamespace
from uuid import UUID

import pytest

from millrace.errors import ErrorCode, MillraceError, NotControllerError, ZooKeeperError
from millrace.wire.messages import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    ALTER_PARTITION_REASSIGNMENTS,
    CONTROLLED_SHUTDOWN,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
)
from millrace_broker.cluster.metadata_image import TopicIdPartition
from millrace_broker.controller.cluster_state import Assignment, LeaderAndIsr
from millrace_broker.controller.elections import IsrProposal
from millrace_broker.handlers import controller_requests, reassignments
from millrace_broker.handlers.api import Request
from millrace_broker.storage import TopicPartition

FIRST, SECOND = UUID(int=1), UUID(int=2)


class Controller:
    """Notes what it is asked for."""

    def __init__(self, result):
        self.result = result
        self.calls = []

    def asked(self, ask):
        future = Future()
        try:
            future.set_result(ask(self))
        except MillraceError as error:
            future.set_exception(error)
        return future

    def _answered(self, *arguments, **options):
        self.calls.append((*arguments, *options.values()))
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def without_leaders(self, keys):
        return {(2, "an address"): keys[:1]}

    def read_log_ends(self, questions):
        return {key: {broker: (4, 70)} for (broker, _), keys in questions.items() for key in keys}

    alter_partitions = shut_down = allocate_producer_ids = elect = reassign = reassignments = _answered


def ask(handle, messages, version, fields, controller):
    services = SimpleNamespace(controller=controller, errors=Counter(), authorizer=None)
    body = memoryview(messages.encode_request(version, fields))

    async def handled():
        return await handle(services, Request(version, "client", body))

    return messages.decode_response(version, b"".join(asyncio.run(handled())))


REQUESTS = [
    (controller_requests.controlled_shutdown, CONTROLLED_SHUTDOWN, 3),
    (controller_requests.alter_partition, ALTER_PARTITION, 3),
    (controller_requests.allocate_producer_ids, ALLOCATE_PRODUCER_IDS, 0),
]
HANDLERS = [handle.__name__ for handle, *_ in REQUESTS]


@pytest.mark.parametrize(
    ("controller", "code"),
    [
        (None, ErrorCode.NOT_CONTROLLER),
        (Controller(NotControllerError("another is")), ErrorCode.NOT_CONTROLLER),
        (Controller(ErrorCode.STALE_BROKER_EPOCH), ErrorCode.STALE_BROKER_EPOCH),
        (Controller(ZooKeeperError("lost")), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=["standalone", "not the controller", "refused", "failed"],
)
@pytest.mark.parametrize(("handle", "messages", "version"), REQUESTS, ids=HANDLERS)
def test_an_error_answers_the_whole_request(handle, messages, version, controller, code):
    fields = {"broker_id": 1, "broker_epoch": 7, "topics": []}
    assert ask(handle, messages, version, fields, controller).error_code == code


@pytest.mark.parametrize("version", range(4))
def test_a_broker_that_stops_hears_what_it_still_leads(version):
    controller = Controller([TopicPartition("t", 3), TopicPartition("u", 0)])
    fields = {"broker_id": 1, "broker_epoch": 7}
    answer = ask(controller_requests.controlled_shutdown, CONTROLLED_SHUTDOWN, version, fields, controller)
    assert answer.error_code == 0
    left = [(one.topic_name, one.partition_index) for one in answer.remaining_partitions]
    assert left == [("t", 3), ("u", 0)]
    assert controller.calls == [(1, 7 if version >= 2 else -1)]


@pytest.mark.parametrize("version", [2, 3])
def test_a_leader_hears_of_each_partition(version):
    first, second, third = TopicIdPartition(FIRST, 0), TopicIdPartition(FIRST, 4), TopicIdPartition(SECOND, 0)
    controller = Controller(
        {
            first: LeaderAndIsr(1, 5, (1, 2), partition_epoch=9, leader_recovery_state=1),
            second: ErrorCode.FENCED_LEADER_EPOCH,
            third: ErrorCode.UNKNOWN_TOPIC_ID,
        }
    )
    isr = {"new_isr": [1, 2], "new_isr_with_epochs": [{"broker_id": 1, "broker_epoch": 7}, {"broker_id": 2}]}

    def asked_for(key):
        return {"partition_index": key.partition, "leader_epoch": 5, "partition_epoch": 8, **isr}

    fields = {
        "broker_id": 1,
        "broker_epoch": 7,
        "topics": [
            {"topic_id": FIRST, "partitions": [asked_for(first), asked_for(second)]},
            {"topic_id": SECOND, "partitions": [asked_for(third)]},
        ],
    }
    answer = ask(controller_requests.alter_partition, ALTER_PARTITION, version, fields, controller)
    [(broker, epoch, proposals)] = controller.calls
    assert (broker, epoch) == (1, 7)
    isr_with_epochs = {1: 7, 2: -1} if version >= 3 else {1: -1, 2: -1}
    assert proposals == dict.fromkeys((first, second, third), IsrProposal(1, 5, 8, isr_with_epochs, 0))
    assert [topic.topic_id for topic in answer.topics] == [FIRST, SECOND]
    [changed, fenced], [unknown] = [topic.partitions for topic in answer.topics]
    assert (changed.error_code, changed.leader_id, changed.leader_epoch, changed.partition_epoch) == (0, 1, 5, 9)
    assert (changed.isr, changed.leader_recovery_state) == ((1, 2), 1)
    assert (fenced.partition_index, fenced.error_code) == (4, ErrorCode.FENCED_LEADER_EPOCH)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [0, 1])
def test_a_leader_of_an_older_release_asks_by_name(version):
    first, second, third = TopicPartition("t", 0), TopicPartition("t", 4), TopicPartition("u", 0)
    controller = Controller(
        {
            first: LeaderAndIsr(1, 5, (1, 2), partition_epoch=9, leader_recovery_state=1),
            second: ErrorCode.INELIGIBLE_REPLICA,
            third: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
    )

    def asked_for(key):
        fields = {"partition_index": key.partition, "leader_epoch": 5, "partition_epoch": 8, "new_isr": [1, 2]}
        return {**fields, "leader_recovery_state": 1}

    topics = [
        {"topic_name": "t", "partitions": [asked_for(first), asked_for(second)]},
        {"topic_name": "u", "partitions": [asked_for(third)]},
    ]
    fields = {"broker_id": 1, "broker_epoch": 7, "topics": topics}
    answer = ask(controller_requests.alter_partition, ALTER_PARTITION, version, fields, controller)
    [(_, _, proposals)] = controller.calls
    assert proposals == dict.fromkeys((first, second, third), IsrProposal(1, 5, 8, {1: -1, 2: -1}, version))
    assert [topic.topic_name for topic in answer.topics] == ["t", "u"]
    [changed, not_eligible], [unknown] = [topic.partitions for topic in answer.topics]
    assert (changed.error_code, changed.isr, changed.partition_epoch) == (0, (1, 2), 9)
    assert changed.leader_recovery_state == version
    assert not_eligible.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_broker_gets_a_block_of_producer_ids():
    fields = {"broker_id": 1, "broker_epoch": 7}
    answer = ask(
        controller_requests.allocate_producer_ids, ALLOCATE_PRODUCER_IDS, 0, fields, Controller(range(3000, 4000))
    )
    assert (answer.error_code, answer.producer_id_start, answer.producer_id_len) == (0, 3000, 1000)


@pytest.mark.parametrize("version", range(3))
def test_an_operator_hears_what_elections_came_to(version):
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    controller = Controller({second: ErrorCode.ELECTION_NOT_NEEDED, first: ErrorCode.NONE})
    kind = reassignments.UNCLEAN if version else reassignments.PREFERRED
    fields = {"election_type": kind, "topic_partitions": [{"topic": "t", "partitions": [0, 1]}], "timeout": 1000}
    answer = ask(reassignments.elect_leaders, ELECT_LEADERS, version, fields, controller)
    [topic] = answer.replica_election_results
    results = [(one.partition_id, one.error_code) for one in topic.partition_result]
    assert results == [(0, 0), (1, ErrorCode.ELECTION_NOT_NEEDED)]
    ends = {first: {2: (4, 70)}}
    assert controller.calls == [([first, second], True, ends) if version else ([first, second],)]


def test_of_an_election_of_all_partitions_those_are_told_that_needed_one():
    controller = Controller(
        {TopicPartition("t", 0): ErrorCode.ELECTION_NOT_NEEDED, TopicPartition("u", 2): ErrorCode.NONE}
    )
    fields = {"election_type": 0, "topic_partitions": None, "timeout": 1000}
    answer = ask(reassignments.elect_leaders, ELECT_LEADERS, 2, fields, controller)
    assert [topic.topic for topic in answer.replica_election_results] == ["u"]
    assert controller.calls == [(None,)]


@pytest.mark.parametrize("version", [0, 1])
def test_reassignments_begin_and_are_cancelled(version):
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    controller = Controller({first: ErrorCode.NONE, second: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS})
    partitions = [{"partition_index": 0, "replicas": [2, 3]}, {"partition_index": 1, "replicas": None}]
    fields = {
        "timeout": 1000,
        "allow_replication_factor_change": False,
        "topics": [{"name": "t", "partitions": partitions}],
    }
    answer = ask(reassignments.alter, ALTER_PARTITION_REASSIGNMENTS, version, fields, controller)
    [topic] = answer.responses
    assert [one.error_code for one in topic.partitions] == [0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    assert controller.calls == [({first: (2, 3), second: None}, version == 1)]


@pytest.mark.parametrize("wanted", [None, [{"name": "t", "partition_indexes": [1, 2]}]], ids=["all", "some"])
def test_reassignments_under_way_are_listed(wanted):
    under_way = {
        TopicPartition("t", 1): Assignment((3, 1), (3,), (1,)),
        TopicPartition("u", 0): Assignment((4, 1), (4,)),
    }
    fields = {"timeout": 1000, "topics": wanted}
    answer = ask(reassignments.list_all, LIST_PARTITION_REASSIGNMENTS, 0, fields, Controller(under_way))
    assert [topic.name for topic in answer.topics] == ["t", "u"] if wanted is None else ["t"]
    [moved] = answer.topics[0].partitions
    assert (moved.replicas, moved.adding_replicas, moved.removing_replicas) == ((3, 1), (3,), (1,))


@pytest.mark.parametrize(
    ("handle", "messages", "version", "fields"),
    [
        (reassignments.elect_leaders, ELECT_LEADERS, 2, {"election_type": 0, "topic_partitions": None, "timeout": 0}),
        (reassignments.alter, ALTER_PARTITION_REASSIGNMENTS, 0, {"timeout": 0, "topics": []}),
        (reassignments.list_all, LIST_PARTITION_REASSIGNMENTS, 0, {"timeout": 0, "topics": None}),
    ],
    ids=["elections", "reassignments", "list"],
)
def test_an_operator_is_sent_to_the_controller(handle, messages, version, fields):
    answer = ask(handle, messages, version, fields, Controller(NotControllerError("another is")))
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
