"""The errors that stop a load, beside those that stop a read of its topic (`millrace_pipelines.spark.errors`).

WarehouseError
├── SchemaError               a declared schema, or a table's, that can't be used
│   └── SchemaChangedError    a field whose type does not fit its column
├── RegistryError             the schema registry can't be asked; another run may pass
├── StaleLedgerError          another load committed first; another run may pass
├── KeylessRecordsError       an upsert meets records without a key; an option accepts them (`AcceptableError`)
├── LedgerError               rows and ledger of a table don't belong together, or the ledger is lost
├── TableRefusedError         the table uses something of its format that can't be obeyed; nothing has changed
├── ModeError                 a table of one mode is used in another, or asked for what its mode can't do
├── TableNotFoundError        no table of Millrace at this path
├── QueryError                SQL that can't be run over the tables
├── ExecutorSetupError        Spark's executors lack Millrace or its Python, or have another version of them
├── FolderNotSharedError      an executor does not see the table's folder, or may not write into it
├── AddressError              an address that names no store, or no table in one
├── StoreError                a store that does not do what it is asked; another run may pass
│   ├── StoreDeniedError      a store that refuses the credentials, or a right that they lack
│   └── BucketNotFoundError   a bucket that its store does not have
├── RegistrationError         a table can't be entered in another engine's catalog; another run may pass
├── CatalogError              an Iceberg catalog that can't be asked; another run may pass
├── UnsafeStoreError          a store or catalog in which two writers could overwrite one another's commit
├── LeaseLostError            an operation that was taken for dead; nothing of it was committed
└── LoadFailedError           the Spark job failed, or its counts don't add up; another run may pass
"""

from __future__ import annotations

from millrace.errors import WarehouseError
from millrace_pipelines.spark.errors import AcceptableError


class SchemaError(WarehouseError):
    """A declared schema is not valid, or differs from the table's."""


class SchemaChangedError(SchemaError):
    """A field's type neither fits the table's column nor widens it."""


class RegistryError(WarehouseError, retriable=True):
    """The schema registry can't be reached, or is not well."""


class StaleLedgerError(WarehouseError, retriable=True):
    """Another load changed the ledger between this load's plan and its commit; nothing of this load was committed."""


class KeylessRecordsError(AcceptableError):
    """Records have no key, and a table with a row for each key can't hold them."""


class LedgerError(WarehouseError):
    """A table's rows and its ledger (the offsets that it holds) don't belong together, or the ledger is lost."""


class SwitchError(WarehouseError):
    """A table can't go on with a topic, as that does not have the table's records at the same offsets."""


class TableRefusedError(WarehouseError):
    """A table uses something of its format that this access can't obey; nothing was changed."""


class ModeError(WarehouseError):
    """An operation or option does not fit the table's mode, append or upsert."""


class TableNotFoundError(WarehouseError):
    """There is no table of Millrace at this path."""


class QueryError(WarehouseError):
    """DuckDB refuses a query over the tables."""


class LoadFailedError(WarehouseError, retriable=True):
    """The tasks failed or their counts don't add up; nothing was committed.

    A task's failure says little of its cause, so that it counts as one that may pass.
    """


class ExecutorSetupError(WarehouseError):
    """Spark's executors lack Millrace or its Python, or have another version of them; nothing was committed."""


class FolderNotSharedError(WarehouseError):
    """A Spark executor does not see the table's folder, or may not write into it; nothing was written."""


class AddressError(WarehouseError):
    """An address names no store that is known, or no table in one."""


class StoreError(WarehouseError, OSError, retriable=True):
    """A store does not do what it is asked, such as one that can't be reached."""


class StoreDeniedError(StoreError, retriable=False):
    """A store refuses the credentials, or a right that they lack."""


class BucketNotFoundError(StoreError, retriable=False):
    """A store has no bucket, or container, of this name."""


class CatalogError(WarehouseError, retriable=True):
    """An Iceberg catalog can't be asked, or what it names can't be read."""


class RegistrationError(WarehouseError, retriable=True):
    """A table can't be entered in the catalog of another engine; the table itself is as it should be."""


class UnsafeStoreError(WarehouseError):
    """A store or catalog does not honour conditional writes, so that a commit could overwrite another."""


class LeaseLostError(WarehouseError, retriable=True):
    """An operation did not renew its lease in time and was taken for dead; nothing of it was committed."""


NOT_COMMITTED = (StaleLedgerError, TableRefusedError, LeaseLostError)
"""The errors of a commit after which it is certain that it was not made."""
