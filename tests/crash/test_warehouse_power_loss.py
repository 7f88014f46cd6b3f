"""Power cuts: the order in which a load reaches the disk, and what a cut may leave at the end of a table's log."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from millrace.errors import WarehouseError
from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.delta.commits import LEDGER_FILE
from millrace_pipelines.warehouse.delta.table import CHECKPOINT_INTERVAL, Table
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.table.files import write_file
from millrace_support.small_tables import open_tables

FS = OsFileSystem()
CALL = re.compile(r"^(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+)")
UNFINISHED, RESUMED = " <unfinished ...>", re.compile(r"^<\.\.\. \w+ resumed>")
CALLS = "openat,fsync,fdatasync,rename,renameat,renameat2,link,linkat,close"


def make(directory):
    properties = {"millrace.topic": "events", "millrace.topicId": "id"}
    return Table.load_or_create(directory, FS, schema=ENVELOPE_SCHEMA, name="events", configuration=properties)


def load(directory, offset):
    """Write and commit one row, as a load does."""
    table = make(directory)
    columns = {name: pa.nulls(1, ENVELOPE_SCHEMA.field(name).type) for name in ENVELOPE_SCHEMA.names}
    columns |= {"partition": pa.array([0], pa.int32()), "offset": pa.array([offset], pa.int64())}
    file = write_file(directory, "load", pa.table(columns, schema=ENVELOPE_SCHEMA), FS)
    expected, transactions = swap(ledger_of(table), {0: LedgerEntry(0, offset + 1)})
    return table.commit([file], expected=expected, transactions=transactions, lineage={"ranges": [], "lost": []})


def whole_lines(trace):
    """Yields each call as one line without its thread's id; strace splits a call in two where another comes between."""
    begun = {}
    for line in trace.read_text(errors="replace").splitlines():
        thread, _, text = line.partition(" ")
        text = text.strip()
        if text.endswith(UNFINISHED):
            begun[thread] = text.removesuffix(UNFINISHED)
        elif resumed := RESUMED.match(text):
            yield begun.pop(thread) + text[resumed.end() :]
        else:
            yield text


def traced(trace):
    """What was synced and put in place, in order: ("fsync" | "named", path)."""
    paths, events = {}, []
    for line in whole_lines(trace):
        call = CALL.match(line)
        if call is None or int(call["result"]) < 0:
            continue
        named = re.findall(r'"([^"]*)"', call["arguments"])
        if call["name"] == "openat":
            paths[int(call["result"])] = named[0]
        elif call["name"] in ("fsync", "fdatasync"):
            events.append(("fsync", paths.get(int(call["arguments"]))))
        elif named and call["name"] != "close":
            events.append(("named", named[-1]))
    return events


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_rows_are_on_the_disk_before_the_commit_and_the_commit_before_it_counts(tmp_path):
    table, trace = str(tmp_path / "table"), tmp_path / "trace"
    path = [str(Path(__file__).parent), *sys.path]
    program = f"import sys; sys.path[:] = {path!r}; import test_warehouse_power_loss as t"
    command = [sys.executable, "-c", f"{program}; t.load({table!r}, 0); t.load({table!r}, 1)"]
    subprocess.run(["strace", "-f", "-e", f"trace={CALLS}", "-o", str(trace), *command], check=True, timeout=400)
    events = traced(trace)
    [(first, second)] = [sorted(Path(table).glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)]
    for version, data in ((1, first), (2, second)):
        commit = f"{table}/_delta_log/{version:020d}.json"
        placed = events.index(("named", commit))
        order = [
            events.index(("fsync", str(data))),
            events.index(("fsync", table), events.index(("fsync", str(data)))),
            placed,
            events.index(("fsync", commit), placed),
            events.index(("fsync", f"{table}/_delta_log"), placed),
        ]
        assert order == sorted(order)
    assert events.index(("fsync", str(second))) > events.index(("fsync", f"{table}/_delta_log/{1:020d}.json"))


def cut_newest(directory):
    """Makes two commits; returns the path of the newer, which nobody was told of: the ledger's copy comes after it."""
    load(directory, 0)
    copy = Path(directory, LEDGER_FILE).read_bytes()
    load(directory, 1)
    Path(directory, LEDGER_FILE).write_bytes(copy)
    return Path(directory, "_delta_log", f"{2:020d}.json")


@pytest.mark.parametrize("left", ["nothing", "half", "zeros"])
def test_a_commit_without_its_bytes_is_no_commit(tmp_path, left):
    directory = str(tmp_path / "t")
    newest = cut_newest(directory)
    content = newest.read_bytes()
    newest.write_bytes({"nothing": b"", "half": content[: len(content) // 2], "zeros": b"\0" * len(content)}[left])
    assert ledger_of(make(directory)).next_offset(0) == 1
    load(directory, 1)
    assert ledger_of(Table.load(directory, FS)).next_offset(0) == 2
    assert len(Table.load(directory, FS).files()) == 2


def test_a_load_opens_a_table_whose_newest_commit_is_torn(tmp_path):
    directory = str(tmp_path / "t")
    newest = cut_newest(directory)
    newest.write_bytes(newest.read_bytes()[:100])
    assert ledger_of(open_tables(directory, "events", "id", None, FS).rows).next_offset(0) == 1


def test_a_path_that_is_a_file_is_no_table(tmp_path):
    (tmp_path / "t").touch()
    with pytest.raises(WarehouseError, match="not a table that can be read"):
        open_tables(str(tmp_path / "t"), "events", "id", None, FS)


@pytest.mark.parametrize("torn", ["checkpoint.parquet", "_last_checkpoint"])
def test_a_checkpoint_without_its_bytes_is_no_checkpoint(tmp_path, torn):
    directory = str(tmp_path / "t")
    for offset in range(CHECKPOINT_INTERVAL):
        load(directory, offset)
    [path] = (tmp_path / "t" / "_delta_log").glob(f"*{torn}")
    path.write_bytes(path.read_bytes()[:10])
    load(directory, CHECKPOINT_INTERVAL)
    assert ledger_of(Table.load(directory, FS)).next_offset(0) == CHECKPOINT_INTERVAL + 1


def test_a_commit_torn_below_the_newest_is_not_mended(tmp_path):
    directory = str(tmp_path / "t")
    for offset in range(3):
        load(directory, offset)
    (tmp_path / "t" / "_delta_log" / f"{2:020d}.json").write_bytes(b"{")
    with pytest.raises(WarehouseError, match="not a table that can be read"):
        make(directory)
