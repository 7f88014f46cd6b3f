"""What stops a load.

WarehouseError
├── SchemaError               a declared schema, or a table's, that can't be used
├── StaleLedgerError          another load committed first; run again
├── OffsetsLostError          retention deleted offsets before they were loaded
├── LogTruncatedError         the log ends before the ledger's next offset
├── TopicRecreatedError       the table belongs to an earlier topic of this name
├── TableNotFoundError        no table of Millrace at this path
└── LoadFailedError           the Spark job failed, or its counts don't add up; nothing was committed
"""

from __future__ import annotations

from millrace.errors import WarehouseError


class SchemaError(WarehouseError):
    """A declared schema that is not valid, or differs from the table's."""


class StaleLedgerError(WarehouseError):
    """Another load moved the ledger between this one's plan and its commit; nothing of this load was committed."""

    retriable = True


class OffsetsLostError(WarehouseError):
    """Retention deleted offsets that the table doesn't have."""


class LogTruncatedError(WarehouseError):
    """The log ends before offsets that the table has."""


class TopicRecreatedError(WarehouseError):
    """The topic's id differs from the one the table was loaded from."""


class TableNotFoundError(WarehouseError):
    """No table of Millrace at this path."""


class LoadFailedError(WarehouseError):
    """The tasks failed or their counts don't add up; nothing was committed."""
