"""The states of a transaction; the numbers are those of Kafka's records, the texts those of its tools.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit ─┐
      ▲          ▲  └───► PrepareAbort ───► CompleteAbort ──┤
      └──────────┴──────────────────────────────────────────┘

A client of KIP-890 may abort what it has not begun, which goes from Empty or a Complete state to PrepareAbort. Dead is
an id that is being forgotten; PrepareEpochFence, in Kafka a state between Ongoing and PrepareAbort, is never kept.
"""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    """How far a transaction is."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    def __str__(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))


DECIDED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
IDLE = (TransactionState.EMPTY, *COMPLETE)
OPEN = (TransactionState.ONGOING, *DECIDED)

FROM = {
    TransactionState.EMPTY: IDLE,
    TransactionState.ONGOING: (TransactionState.ONGOING, *IDLE),
    TransactionState.PREPARE_COMMIT: (TransactionState.ONGOING,),
    TransactionState.PREPARE_ABORT: (TransactionState.ONGOING, *IDLE),
    TransactionState.COMPLETE_COMMIT: (TransactionState.PREPARE_COMMIT,),
    TransactionState.COMPLETE_ABORT: (TransactionState.PREPARE_ABORT,),
    TransactionState.DEAD: IDLE,
}
"""From which states each is reached."""

STATE_NAMES = {str(state): state for state in TransactionState}
