"""Proposals of in-sync replicas on their way to a controller: batches, replacements, refusals and lost answers."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from millrace.addresses import LOOPBACK, Address
from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.header import RequestHeader
from millrace.wire.messages import ALTER_PARTITION
from millrace_broker.replication.in_sync_replicas import Proposal
from millrace_broker.replication.isr_change_sender import IsrChangeSender, Sender
from millrace_broker.replication.isr_tables import Accepted
from millrace_broker.storage import TopicPartition
from millrace_support.scripted_broker import ScriptedBroker, answer_frame, answer_versions

EVENTS, OTHERS = UUID(int=1), UUID(int=2)
A, B, C = TopicPartition("events", 0), TopicPartition("events", 1), TopicPartition("others", 0)
FIRST, SECOND = Proposal(frozenset({1, 2}), 4, {2: 52}), Proposal(frozenset({1}), 4)
TAKEN = Accepted(frozenset({1, 2}), 7, 5)
NOBODY = Address(LOOPBACK, 1)

Asked = dict[tuple[UUID, int], Any]
Outcome = tuple[TopicPartition, Proposal, Accepted | ErrorCode]


class Answer(NamedTuple):
    """What the controller answers: an error of the whole request, or of the partitions that are named."""

    error_code: int = 0
    errors: Mapping[tuple[UUID, int], int] = {}
    leaves_out: tuple[tuple[UUID, int], ...] = ()
    hangs_up: bool = False


class Controller:
    """Takes what is proposed, unless an answer is given in advance."""

    def __init__(self) -> None:
        self.versions = VersionRange(0, 3)
        self.requests: list[Any] = []
        self.answers: deque[Answer] = deque()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.has_come = asyncio.Event()

    def asked(self) -> list[Asked]:
        """Returns the partitions of each request."""
        return [
            {(topic.topic_id, one.partition_index): one for topic in request.topics for one in topic.partitions}
            for request in self.requests
        ]

    async def answer(self, header: RequestHeader, message: memoryview) -> bytes | None:
        if versions := answer_versions(header, {ApiKey.ALTER_PARTITION: self.versions}):
            return versions
        self.requests.append(ALTER_PARTITION.decode_request(header.api_version, message))
        self.has_come.set()
        await self.may_answer.wait()
        answer = self.answers.popleft() if self.answers else Answer()
        if answer.hangs_up:
            return None
        topics = [] if answer.error_code else [
            {
                "topic_id": topic.topic_id,
                "partitions": [
                    {
                        "partition_index": one.partition_index,
                        "error_code": answer.errors.get((topic.topic_id, one.partition_index), 0),
                        "leader_id": 1, "leader_epoch": one.leader_epoch,
                        "isr": [each.broker_id for each in one.new_isr_with_epochs] or one.new_isr,
                        "partition_epoch": one.partition_epoch + 1,
                    }
                    for one in topic.partitions
                    if (topic.topic_id, one.partition_index) not in answer.leaves_out
                ],
            }
            for topic in self.requests[-1].topics
        ]  # fmt: skip
        fields = {"throttle_time_ms": 0, "error_code": answer.error_code, "topics": topics}
        return answer_frame(header, ALTER_PARTITION.encode_response(header.api_version, fields))


class Home:
    """A sender, the controllers that it may find, and what its tables are told."""

    def __init__(self, address: Address | None) -> None:
        self.controller = Controller()
        self.address = address
        self.outcomes: list[Outcome] = []
        self.looks = 0
        self.sender = IsrChangeSender(lambda: Sender(1, 70 + self.looks), self.find, pause_s=0.001)
        self.again: Proposal | None = None

    def find(self) -> Address | None:
        self.looks += 1
        return self.address

    def answered(self, key: TopicPartition, proposal: Proposal, outcome: Accepted | ErrorCode) -> None:
        self.outcomes.append((key, proposal, outcome))
        if self.again is not None and isinstance(outcome, ErrorCode):
            self.sender.propose(key, EVENTS, 7, self.again)

    async def until(self, is_so: Callable[[], bool]) -> None:
        while True:
            if is_so():
                return
            await asyncio.sleep(0)


def play(scene: Callable[[Home], Awaitable[None]]) -> Home:
    """Runs a scene with a controller that listens, and returns what is left."""

    async def whole() -> Home:
        home = Home(None)
        async with ScriptedBroker(home.controller.answer) as broker:
            home.address = broker.address
            home.sender.start(home.answered)
            try:
                await asyncio.wait_for(scene(home), 60)
            finally:
                await home.sender.stop()
        return home

    return asyncio.run(whole())


def test_a_proposal_is_asked_for_and_its_table_told() -> None:
    async def scene(home: Home) -> None:
        home.sender.propose(A, EVENTS, 7, FIRST)
        await home.until(lambda: bool(home.outcomes))

    home = play(scene)
    assert home.outcomes == [(A, FIRST, TAKEN)]
    (request,) = home.controller.requests
    assert (request.broker_id, request.broker_epoch) == (1, 71)
    (one,) = request.topics[0].partitions
    assert (one.leader_epoch, one.partition_epoch) == (7, 4)
    assert [(each.broker_id, each.broker_epoch) for each in one.new_isr_with_epochs] == [(1, -1), (2, 52)]


def test_a_controller_that_knows_no_epochs_of_brokers_is_asked_without_them() -> None:
    """Apache Kafka 3.3 and 3.4."""

    async def scene(home: Home) -> None:
        home.controller.versions = VersionRange(0, 2)
        home.sender.propose(A, EVENTS, 7, FIRST)
        await home.until(lambda: bool(home.outcomes))

    home = play(scene)
    assert home.outcomes == [(A, FIRST, TAKEN)]
    (one,) = home.controller.requests[0].topics[0].partitions
    assert (one.new_isr, one.new_isr_with_epochs) == ((1, 2), ())


def test_what_waits_while_one_is_in_flight_goes_together() -> None:
    async def scene(home: Home) -> None:
        home.controller.may_answer.clear()
        home.sender.propose(A, EVENTS, 7, FIRST)
        await home.controller.has_come.wait()
        home.sender.propose(B, EVENTS, 7, FIRST)
        home.sender.propose(C, OTHERS, 7, FIRST)
        home.controller.may_answer.set()
        await home.until(lambda: len(home.outcomes) == 3)

    home = play(scene)
    assert [set(one) for one in home.controller.asked()] == [{(EVENTS, 0)}, {(EVENTS, 1), (OTHERS, 0)}]
    assert {key for key, _, _ in home.outcomes} == {A, B, C}


def test_a_newer_proposal_takes_the_place_of_one_in_flight() -> None:
    async def scene(home: Home) -> None:
        home.controller.may_answer.clear()
        home.sender.propose(A, EVENTS, 7, FIRST)
        await home.controller.has_come.wait()
        home.sender.propose(A, EVENTS, 8, SECOND)
        home.controller.may_answer.set()
        await home.until(lambda: len(home.outcomes) == 2)

    home = play(scene)
    assert home.outcomes == [(A, FIRST, TAKEN), (A, SECOND, Accepted(frozenset({1}), 8, 5))]


def test_what_its_table_asks_for_again_is_sent_again() -> None:
    async def scene(home: Home) -> None:
        home.again = SECOND
        home.controller.answers.append(Answer(errors={(EVENTS, 0): ErrorCode.UNKNOWN_SERVER_ERROR}))
        home.sender.propose(A, EVENTS, 7, FIRST)
        home.sender.propose(B, EVENTS, 7, FIRST)
        await home.until(lambda: len(home.outcomes) == 3)

    assert play(scene).outcomes == [
        (A, FIRST, ErrorCode.UNKNOWN_SERVER_ERROR),
        (B, FIRST, TAKEN),
        (A, SECOND, Accepted(frozenset({1}), 7, 5)),
    ]


def test_a_whole_request_that_fails_is_sent_again_with_the_newest_broker_epoch() -> None:
    async def scene(home: Home) -> None:
        home.controller.answers += [
            Answer(ErrorCode.NOT_CONTROLLER),
            Answer(ErrorCode.STALE_BROKER_EPOCH),
            Answer(hangs_up=True),
            Answer(leaves_out=((EVENTS, 0),)),
        ]
        home.sender.propose(A, EVENTS, 7, FIRST)
        await home.until(lambda: bool(home.outcomes))

    home = play(scene)
    assert home.outcomes == [(A, FIRST, TAKEN)]
    assert [one.broker_epoch for one in home.controller.requests] == [71, 72, 73, 74, 75]


def test_the_newest_controller_is_asked() -> None:
    async def scene(home: Home) -> None:
        async with ScriptedBroker(Controller().answer) as newer:
            home.controller.answers.append(Answer(ErrorCode.NOT_CONTROLLER))
            home.controller.may_answer.clear()
            home.sender.propose(A, EVENTS, 7, FIRST)
            await home.controller.has_come.wait()
            home.address = newer.address
            home.controller.may_answer.set()
            await home.until(lambda: bool(home.outcomes))
            assert [one.api_key for one in newer.requests] == [ApiKey.API_VERSIONS, ApiKey.ALTER_PARTITION]

    home = play(scene)
    assert (home.outcomes, len(home.controller.requests)) == ([(A, FIRST, TAKEN)], 1)


def test_a_cluster_without_a_controller_is_asked_until_it_has_one() -> None:
    async def scene(home: Home) -> None:
        there, home.address = home.address, None
        home.sender.propose(A, EVENTS, 7, FIRST)
        await home.until(lambda: home.looks > 2)
        home.address = NOBODY
        looks = home.looks
        await home.until(lambda: home.looks > looks + 2)
        home.address = there
        await home.until(lambda: bool(home.outcomes))

    assert play(scene).outcomes == [(A, FIRST, TAKEN)]
