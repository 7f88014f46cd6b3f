"""Asks the controller for the in-sync replicas that this broker's partitions propose (AlterPartition, KIP-497).

    IsrTables(…, propose=sender.propose)   sender.start(replicas.isr_answered)

    propose ──► what waits, by partition ──► one request with all of it, one in flight ──► the answer of each partition

| what comes back | what follows |
|---|---|
| the state of a partition | its table is told |
| the error of a partition | its table is told, and may propose again; the next request waits for `pause_s` |
| nothing about a partition | it is asked for again after `pause_s` |
| an error of the whole request, no connection, no answer | all is asked for again after `pause_s` |

Each request goes to the controller that the newest metadata names, with the newest broker epoch: so NOT_CONTROLLER and
STALE_BROKER_EPOCH end by themselves. Apache Kafka's controllers know version 3 since release 3.5, and version 2, which
has no epochs of brokers, since 3.3.

A proposal takes the place of the one before it for the same partition. The answer to a proposal that was replaced
meanwhile is told all the same: the table knows whether it is too late. It isn't known whether a request without an
answer was carried out; the controller answers success to what it has done already.

Runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from millrace.addresses import Address
from millrace.error_codes import error_sentence
from millrace.errors import BrokerError, BrokerUnreachableError, ErrorCode, MillraceError
from millrace.leader_states import RECOVERED
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.controller_apis import NO_BROKER_EPOCH
from millrace.wire.messages import ALTER_PARTITION
from millrace_broker.replication.broker_link import BrokerLink, Connect
from millrace_broker.replication.in_sync_replicas import Proposal
from millrace_broker.replication.isr_tables import Accepted
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.alter_partition import (
        AlterPartitionRequestFields,
        AlterPartitionResponse,
        ProposedPartitionFields,
    )

logger = logging.getLogger(__name__)

VERSIONS = VersionRange(2, 3)
FIRST_VERSION_WITH_BROKER_EPOCHS = 3
RETRY_PAUSE_S = 0.05
TIMEOUT_S = 30.0
MAX_RESPONSE_BYTES = 100 << 20

Answered = Callable[[TopicPartition, Proposal, Accepted | ErrorCode], None]


class Change(NamedTuple):
    """The in-sync replicas that a leader proposes for one partition."""

    topic_id: UUID
    leader_epoch: int
    proposal: Proposal


class Sender(NamedTuple):
    """This broker's id and its newest broker epoch."""

    broker_id: int
    broker_epoch: int


class IsrChangeSender:
    """Sends proposals of in-sync replicas to the controller by AlterPartition, and repeats those without an answer.

    Args:
        sender: returns the id and the newest epoch of this broker.
        find_controller: returns where the newest metadata says that the controller listens; None where it has none.
        pause_s: how long to wait before something is asked for again.
        connect: makes the connections.
    """

    def __init__(
        self,
        sender: Callable[[], Sender],
        find_controller: Callable[[], Address | None],
        *,
        pause_s: float = RETRY_PAUSE_S,
        connect: Connect = BrokerLink.connect,
    ) -> None:
        self._connect = connect
        self._sender = sender
        self._find_controller = find_controller
        self._pause_s = pause_s
        self._waiting: dict[TopicPartition, Change] = {}
        self._something_waits = asyncio.Event()
        self._link: BrokerLink | None = None
        self._task: asyncio.Task[None] | None = None

    def propose(self, topic_partition: TopicPartition, topic_id: UUID, leader_epoch: int, proposal: Proposal) -> None:
        """Asks the controller for an ISR; a proposal for the same partition that still waits is replaced."""
        self._waiting[topic_partition] = Change(topic_id, leader_epoch, proposal)
        self._something_waits.set()

    def start(self, answered: Answered) -> None:
        """Begins to send; `answered` is called with the outcome of each proposal."""
        self._task = asyncio.get_running_loop().create_task(self._run(answered))

    async def stop(self) -> None:
        """Stops sending; proposals that still wait are dropped."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._link is not None:
            self._link.close()

    async def _run(self, answered: Answered) -> None:
        while True:
            await self._something_waits.wait()
            if not await self._send(dict(self._waiting), answered):
                await asyncio.sleep(self._pause_s)
            if not self._waiting:
                self._something_waits.clear()

    async def _send(self, changes: Mapping[TopicPartition, Change], answered: Answered) -> bool:
        """Sends all changes in one request and calls `answered` for each outcome; returns whether all were accepted."""
        try:
            outcomes = outcomes_in(await self._ask(changes), changes)
        except MillraceError as error:
            logger.info("the in-sync replicas of %d partitions are proposed again: %s", len(changes), error)
            return False
        for key, outcome in outcomes.items():
            if self._waiting.get(key) is changes[key]:
                del self._waiting[key]
            if isinstance(outcome, ErrorCode):
                logger.info("%s keeps its in-sync replicas: %s", key, error_sentence(outcome))
            answered(key, changes[key].proposal, outcome)
        return len(outcomes) == len(changes) and all(isinstance(one, Accepted) for one in outcomes.values())

    async def _ask(self, changes: Mapping[TopicPartition, Change]) -> AlterPartitionResponse:
        """Returns the answer to all changes. Raises BrokerError for a refusal, AnswerLostError for none."""
        link = await self._connected()
        version = await link.newest_version(ApiKey.ALTER_PARTITION, VERSIONS)
        answer = await link.request(ALTER_PARTITION, version, request_for(self._sender(), changes, version))
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(answer.error_code, error_sentence(answer.error_code))
        return answer

    async def _connected(self) -> BrokerLink:
        """Returns the open link to the present controller, a new one if need be. Raises BrokerUnreachableError."""
        address = self._find_controller()
        if self._link is not None and (self._link.is_closed or self._link.address != address):
            self._link.close()
            self._link = None
        if address is None:
            raise BrokerUnreachableError("no controller is known")
        if self._link is None:
            self._link = await self._connect(
                address,
                client_id=f"broker-{self._sender().broker_id}",
                timeout_s=TIMEOUT_S,
                max_response_bytes=MAX_RESPONSE_BYTES,
            )
        return self._link


def request_for(sender: Sender, changes: Mapping[TopicPartition, Change], version: int) -> AlterPartitionRequestFields:
    """Returns the fields of an AlterPartition request of this version with all changes."""
    topics: defaultdict[UUID, list[ProposedPartitionFields]] = defaultdict(list)
    for key, change in changes.items():
        topics[change.topic_id].append(_partition_fields(key.partition, change, version))
    return {
        "broker_id": sender.broker_id,
        "broker_epoch": sender.broker_epoch,
        "topics": [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()],
    }


def _partition_fields(index: int, change: Change, version: int) -> ProposedPartitionFields:
    isr, epochs = sorted(change.proposal.isr), change.proposal.broker_epochs
    fields: ProposedPartitionFields = {
        "partition_index": index,
        "leader_epoch": change.leader_epoch,
        "leader_recovery_state": RECOVERED,
        "partition_epoch": change.proposal.partition_epoch,
    }
    if version < FIRST_VERSION_WITH_BROKER_EPOCHS:
        fields["new_isr"] = isr
    else:
        fields["new_isr_with_epochs"] = [
            {"broker_id": one, "broker_epoch": epochs.get(one, NO_BROKER_EPOCH)} for one in isr
        ]
    return fields


def outcomes_in(
    answer: AlterPartitionResponse, changes: Mapping[TopicPartition, Change]
) -> dict[TopicPartition, Accepted | ErrorCode]:
    """Returns the outcome of each change that the answer has: the new state, or an error."""
    answers = {(topic.topic_id, one.partition_index): one for topic in answer.topics for one in topic.partitions}
    found = {key: answers.get((change.topic_id, key.partition)) for key, change in changes.items()}
    return {
        key: ErrorCode(one.error_code)
        if one.error_code
        else Accepted(frozenset(one.isr), one.leader_epoch, one.partition_epoch)
        for key, one in found.items()
        if one is not None
    }
