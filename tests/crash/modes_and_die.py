"""Changes a table and kills its own process at a step: `modes_and_die.py DIRECTORY OPERATION STEP`.

Steps: "written", once the first new data file is whole; "before" and "after" the commit; "removed", once vacuum has
taken one file away.
"""

import os
import signal
import sys

import pyarrow as pa
import pyarrow.dataset as ds

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.keys.upsert import Upsert
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.maintenance import compact, vacuum
from millrace_pipelines.warehouse.stores.folder import Folder
from millrace_pipelines.warehouse.stores.leases import lease
from millrace_pipelines.warehouse.table.files import DataFileWriter, remove_files_of_load


def rows_of(pairs, first_offset):
    """Keys and values as the rows of partition 0 from an offset on."""
    return pa.Table.from_pylist(
        [
            {
                "topic": "events",
                "partition": 0,
                "offset": offset,
                "timestamp": 0,
                "key": key,
                "value": value,
                "headers": [],
            }
            for offset, (key, value) in enumerate(pairs, first_offset)
        ],
        ENVELOPE_SCHEMA,
    )


def upsert(directory, pairs, fs, load_id="load"):
    """One run of records, as a load commits it."""
    table = Table.load(directory, fs)
    ledger = ledger_of(table)
    start = ledger.next_offset(0) or 0
    with lease(directory, load_id, fs):
        with DataFileWriter(directory, load_id, 0, ENVELOPE_SCHEMA, fs) as writer:
            writer.write(rows_of(pairs, start))
            staged = [writer.finish()]
        expected, transactions = swap(ledger, {0: LedgerEntry(0, start + len(pairs))})
        Upsert(staged, fs, expected=expected, transactions=transactions, lineage={}).commit(directory)
        remove_files_of_load(directory, load_id, fs)


def operate(directory, operation, fs):
    """Upserts every key again, erases one, compacts, or removes what is not needed."""
    if operation == "upsert":
        keys = ds.dataset(Table.load(directory, fs).files()).to_table(columns=["key"]).column("key").to_pylist()
        upsert(directory, [(key, b"newer") for key in sorted(keys)], fs)
    elif operation == "erase":
        erase(directory, [b"key 1"], fs)
    elif operation == "compact":
        compact(directory, fs, SystemClock())
    else:
        vacuum(directory, fs, retention_hours=0)


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def after(function):
    def called(*args, **kwargs):
        function(*args, **kwargs)
        die()

    return called


if __name__ == "__main__":
    directory, operation, step = sys.argv[1:]
    if step == "written":
        DataFileWriter.finish = after(DataFileWriter.finish)
    elif step == "before":
        Table.commit = die
    elif step == "after":
        Table.commit = after(Table.commit)
    elif step == "removed":
        Folder.remove = after(Folder.remove)
    operate(directory, operation, OsFileSystem())
