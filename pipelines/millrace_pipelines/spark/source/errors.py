"""What stops a read of the data source, beside what the client raises.

WarehouseError
├── SourceOptionError         an option that is unknown, missing, or can't be used
├── CheckpointError           a stream's checkpoint that this source can't have written
├── OffsetsLostError          retention deleted offsets that were asked for
├── LogTruncatedError         the log ends before an offset that was asked for
└── TopicRecreatedError       a stream's topic was deleted and made anew

Spark wraps an error of a planner or a task in one of its own, whose text ends with the name and the words of these.
"""

from __future__ import annotations

from millrace.errors import WarehouseError
from millrace_pipelines.warehouse.errors import LogTruncatedError, OffsetsLostError, TopicRecreatedError

__all__ = [
    "CheckpointError",
    "LogTruncatedError",
    "OffsetsLostError",
    "SourceOptionError",
    "TopicRecreatedError",
]


class SourceOptionError(WarehouseError):
    """An option of the data source that is unknown, missing, or can't be used."""


class CheckpointError(WarehouseError):
    """A stream's checkpoint holds offsets that this source can't have written."""
