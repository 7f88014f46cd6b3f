"""The errors that stop a read of a topic, beside the client's own.

WarehouseError
├── SourceOptionError         an option of the data source that is unknown, missing, or can't be used
├── CheckpointError           a stream's checkpoint that this source can't have written
└── AcceptableError           an error with which a load may go on where an option accepts it
    ├── OffsetsLostError      retention deleted offsets that were asked for, or the log has lost them
    ├── LogTruncatedError     the log ends before an offset that was asked for, or holds other records below it
    └── TopicRecreatedError   the topic was deleted and created again since it was first read

Spark wraps an error of a planner or a task in its own, whose text ends with the name and the message of these.
"""

from __future__ import annotations

from enum import StrEnum

from millrace.errors import WarehouseError

FORMER_OFFSETS_STAY = "offsets that the table has of the former log can't be reloaded in it any more"
"""What a load says before, and not after, that goes on in a new ledger."""


class Accept(StrEnum):
    """The options of `AcceptOptions` by which a load goes on where it would otherwise raise an error."""

    LOST_OFFSETS = "accept_lost_offsets"
    RECREATED_TOPIC = "accept_recreated_topic"
    TRUNCATED_LOG = "accept_truncated_log"
    KEYLESS_RECORDS = "accept_keyless_records"

    @property
    def flag(self) -> str:
        """Returns the option as the command line and the messages of errors spell it: `--accept-lost-offsets`."""
        return "--" + self.replace("_", "-")


class SourceOptionError(WarehouseError):
    """An option of the data source that is unknown, missing, or can't be used."""


class CheckpointError(WarehouseError):
    """A stream's checkpoint holds offsets that this source can't have written."""


class AcceptableError(WarehouseError):
    """An error in spite of which a load can go on, where an option says so.

    Args:
        message: Says what is wrong, and names the option by its flag.
        option: The option with which the load goes on; None where there is none.
    """

    def __init__(self, message: str, option: Accept | None = None) -> None:
        super().__init__(message)
        self.option = option


class OffsetsLostError(AcceptableError):
    """Offsets that the table doesn't have are in the log no more: retention deleted them, or they are missing in it."""


class LogTruncatedError(AcceptableError):
    """The log ends before offsets that the table has."""


class TopicRecreatedError(AcceptableError):
    """The topic's id differs from the one the table was loaded from."""
