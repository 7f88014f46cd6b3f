"""Faults in transactions that are planted for a simulation to find; each function plants the one its name tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millrace.errors import ErrorCode
from millrace_broker.groups.group_coordinator import GroupCoordinator
from millrace_broker.replication.replica import Replica
from millrace_broker.storage import Log
from millrace_broker.storage.producers import producer_state_manager
from millrace_broker.txns import markers, shard
from millrace_broker.txns.shard import Shard
from millrace_broker.txns.state import TransactionState
from millrace_broker.txns.transaction import Transaction
from millrace_support.simulation.planting import Plants

if TYPE_CHECKING:
    import pytest

FAULTS = Plants()


def _at_once(*args: Any, **_: Any) -> None:
    then: Callable[[ErrorCode], None] = args[-1]
    then(ErrorCode.NONE)


# The decision.


@FAULTS.add
def answers_commits_before_they_are_replicated(patch: pytest.MonkeyPatch) -> None:
    """Takes the record of a decision for replicated once the coordinator has it."""
    patch.setattr(shard, "when_replicated", _at_once)


@FAULTS.add
def forgets_the_fence(patch: pytest.MonkeyPatch) -> None:
    """Gives the next instance the epoch of the one before, which can go on then."""
    real = Transaction._bumped  # noqa: SLF001

    def bumped(self: Any, expected_epoch: Any) -> Any:
        found = real(self, expected_epoch)
        return found and (max(self.metadata.producer_epoch, 0), found[1])

    patch.setattr(Transaction, "_bumped", bumped)


@FAULTS.add
def times_out_by_a_commit(patch: pytest.MonkeyPatch) -> None:
    """Commits a transaction that has been open for too long."""
    real: Callable[..., Any] = Transaction.time_out

    def time_out(self: Any, now_ms: int) -> Any:
        stores = real(self, now_ms)
        return [one._replace(metadata=one.metadata._replace(state=TransactionState.PREPARE_COMMIT)) for one in stores]

    patch.setattr(Transaction, "time_out", time_out)


# Markers.


@FAULTS.add
def marks_one_partition(patch: pytest.MonkeyPatch) -> None:
    """Ends a transaction in the first of its partitions only."""
    real = Shard._carry_out  # noqa: SLF001

    def carry_out(self: Any, transaction: Any, decided: Any) -> None:
        real(self, transaction, decided._replace(partitions=frozenset(sorted(decided.partitions)[:1])))

    patch.setattr(Shard, "_carry_out", carry_out)


@FAULTS.add
def counts_markers_before_they_are_replicated(patch: pytest.MonkeyPatch) -> None:
    """Takes a marker for written once the partition's leader has it."""
    patch.setattr(markers, "when_replicated", _at_once)


@FAULTS.add
def takes_markers_that_fail_for_written(patch: pytest.MonkeyPatch) -> None:
    """Does not send a marker again that a leader has refused."""
    real = markers.MarkerSender.send

    def send(self: Any, topic_partition: Any, marker: Any, then: Any) -> None:
        real(self, topic_partition, marker, lambda _: then(ErrorCode.NONE))

    patch.setattr(markers.MarkerSender, "send", send)


@FAULTS.add
def commits_offsets_of_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    """Makes the offsets of a transaction count, however it has ended."""
    real = GroupCoordinator.transaction_ended

    def transaction_ended(self: Any, topic_partition: Any, producer_id: int, *, is_commit: bool) -> None:  # noqa: ARG001
        real(self, topic_partition, producer_id, is_commit=True)

    patch.setattr(GroupCoordinator, "transaction_ended", transaction_ended)


# What is written and read.


@FAULTS.add
def appends_what_is_sent_again(patch: pytest.MonkeyPatch) -> None:
    """Looks for no batch that a producer repeats, and at no sequence."""
    patch.setattr(producer_state_manager, "find_duplicate", lambda *_: None)
    patch.setattr(producer_state_manager, "check_batch", lambda *_: None)


@FAULTS.add
def reads_open_transactions(patch: pytest.MonkeyPatch) -> None:
    """Gives readers of committed records all that is below the high watermark."""
    patch.setattr(Log, "last_stable_offset", lambda _, high_watermark: high_watermark)


@FAULTS.add
def reads_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    """Tells readers of no aborted transaction."""
    real = Replica.read

    def read(*args: Any, **how: Any) -> Any:
        found = real(*args, **how)
        return found if found.aborted is None else found._replace(aborted=[])

    patch.setattr(Replica, "read", read)
