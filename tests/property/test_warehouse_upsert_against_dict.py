"""Runs of records upserted into a table, compacted and erased in between, against a dict that a loop keeps.

Files are written again, or deletion vectors delete their rows; indexes of keys get lost or damaged on the way.
"""

import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.formats import load_or_create, load_table
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.keys.upsert import Upsert
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.maintenance import compact, vacuum
from millrace_pipelines.warehouse.table.files import DataFileWriter

FS = OsFileSystem()
PARTITIONS = 2
PROPERTIES = {"millrace.topic": "events", "millrace.topicId": "id"}
KINDS = [("", False), ("", True), ("iceberg:", False), ("iceberg:", True)]

keys = st.integers(0, 7).map(lambda number: b"key %d" % number)
records = st.tuples(keys, st.none() | st.binary(max_size=4), st.integers(0, 50))
steps = st.one_of(
    st.lists(records, min_size=1, max_size=25),
    st.sampled_from(["compact", "vacuum", "lose an index", "damage an index"]),
    keys,
)


class Topic:
    """Partitions of records; a key is always in the same one."""

    def __init__(self):
        self.ends = dict.fromkeys(range(PARTITIONS), 0)

    def append(self, run):
        rows = []
        for key, value, timestamp in run:
            partition = key[-1] % PARTITIONS
            rows.append(
                {"topic": "events", "partition": partition, "offset": self.ends[partition], "timestamp": timestamp}
                | {"key": key, "value": value, "headers": []}
            )
            self.ends[partition] += 1
        return rows


def upsert(address, rows, ends):
    table = load_table(address, FS)
    staged = []
    for partition in range(PARTITIONS):
        mine = pa.Table.from_pylist([row for row in rows if row["partition"] == partition], ENVELOPE_SCHEMA)
        with DataFileWriter(table.location, "run", partition, ENVELOPE_SCHEMA, FS, field_ids=table.field_ids) as writer:
            writer.write(mine)
            staged += [file for file in [writer.finish()] if file is not None]
    following = {partition: LedgerEntry(0, end) for partition, end in ends.items()}
    expected, transactions = swap(ledger_of(table), following)
    upsert = Upsert(staged, FS, expected=expected, transactions=transactions, lineage={})
    return upsert.commit(address)[1]


def indexes(directory):
    return sorted(Path(directory, "_keys").glob("**/*.keys"))


def held(address):
    table = load_table(address, FS)
    rows = table.dataset().to_table().to_pylist()
    assert len(rows) == len({row["key"] for row in rows})
    return {row["key"]: (row["value"], row["partition"], row["offset"]) for row in rows}


@settings(max_examples=30, deadline=None)
@given(st.lists(steps, max_size=8), st.sampled_from(KINDS))
def test_the_table_is_the_newest_value_of_each_key(steps, kind):
    prefix, by_vectors = kind
    directory = tempfile.mkdtemp(prefix="upsert-")
    try:
        check(f"{prefix}{directory}/shop.events", steps, by_vectors)
    finally:
        shutil.rmtree(directory)


def check(address, steps, by_vectors):
    table = load_or_create(
        address, FS, schema=ENVELOPE_SCHEMA, name="events", configuration=PROPERTIES, deletion_vectors=by_vectors
    )
    topic, model, inserted, directory = Topic(), {}, 0, table.location
    for step in steps:
        if step == "compact":
            compact(address, FS, SystemClock())
        elif step == "vacuum":
            vacuum(address, FS, retention_hours=0)
        elif step == "lose an index":
            for path in indexes(directory)[:1]:
                path.unlink()
        elif step == "damage an index":
            for path in indexes(directory)[-1:]:
                path.write_bytes(path.read_bytes()[:-1] + b"?")
        elif isinstance(step, bytes):
            assert erase(address, [step], FS).rows == (step in model)
            inserted -= step in model
            model.pop(step, None)
        else:
            rows = topic.append(step)
            for row in rows:
                model[row["key"]] = (row["value"], row["partition"], row["offset"])
            model = {key: row for key, row in model.items() if row[0] is not None}
            counts = upsert(address, rows, topic.ends)
            inserted += counts.inserted - counts.deleted
            assert counts.stale == counts.keyless == 0
        assert held(address) == model
        assert len(model) == inserted
