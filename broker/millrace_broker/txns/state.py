"""The states of a transaction; the numbers are those of Kafka's records, the texts those of its tools.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit ─┐
      ▲          ▲  └───► PrepareAbort ───► CompleteAbort ──┤
      └──────────┴──────────────────────────────────────────┘

A client of KIP-890 may abort what it has not begun, which leads from Empty or a Complete state to PrepareAbort. Dead is
the state of an id that is being forgotten. Kafka has PrepareEpochFence between Ongoing and PrepareAbort, but never
stores it.
"""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    """The state of a transaction."""

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
"""For each state those that it may follow."""

STATE_NAMES = {str(state): state for state in TransactionState}
