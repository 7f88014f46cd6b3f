"""The errors that stop a read of a topic, beside the client's own.

WarehouseError
├── SourceOptionError         an option of the data source that is unknown, missing, or can't be used
├── CheckpointError           a stream's checkpoint that this source can't have written
├── OffsetsLostError          retention deleted offsets that were asked for
├── LogTruncatedError         the log ends before an offset that was asked for, or holds other records below it
└── TopicRecreatedError       the topic was deleted and created again since it was first read

Spark wraps an error of a planner or a task in its own, whose text ends with the name and the message of these.
"""

from __future__ import annotations

from millrace.errors import WarehouseError


class SourceOptionError(WarehouseError):
    """An option of the data source that is unknown, missing, or can't be used."""


class CheckpointError(WarehouseError):
    """A stream's checkpoint holds offsets that this source can't have written."""


class OffsetsLostError(WarehouseError):
    """Retention deleted offsets that the table doesn't have."""


class LogTruncatedError(WarehouseError):
    """The log ends before offsets that the table has."""


class TopicRecreatedError(WarehouseError):
    """The topic's id differs from the one the table was loaded from."""
