"""The audit compares sets: each kind of history times each fault, two that cancel each other in all sums among them."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from millrace.clock import SystemClock
from millrace_pipelines.warehouse.completeness.audit import audit, audit_newest_load
from millrace_pipelines.warehouse.dead_letters import REPLAY_APP_ID, REPLAY_KIND, finish_replay
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.ledger.ledger import FORMER_LEDGERS_PROPERTY, GENERATION_PROPERTY, ledger_of
from millrace_pipelines.warehouse.maintenance import compact, vacuum
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.lineage import named_by
from millrace_support.loads import FS, PROPERTIES, Loads
from millrace_support.other_engines import delete_elsewhere

THERE, ABSENT = 12, 14
"""In every history, one offset that is a row, and one that gave none."""
ROWS = [10, 11, 12, 13, 16, 19]


def loaded(loads):
    loads.load((0, 10), range(10))
    loads.load((10, 20), ROWS, dead=[15], keeps=True, values={"key": [b"%d" % n for n in ROWS]})


def loaded_in_part(loads):
    loaded(loads)
    lost = [{"partition": 0, "from_offset": 20, "until_offset": 25, "reason": "retention"}]
    loads.load((25, 27), [25, 26], lost=lost)


def missing_accepted(loads):
    span = {"partition": 0, "from_offset": 10, "until_offset": 20}
    missing = [{"partition": 0, "from_offset": 14, "until_offset": 20, "reason": "missing"}]
    loads.load((10, 20), [10, 11, 12, 13], keeps=True, ranges=[span | {"rows": 4, "missing": 6}], missing=missing)


def reloaded(loads):
    loads.load((0, 10), range(10))
    loads.load((10, 20), range(10, 20), values={"key": [b"%d" % n for n in range(10, 20)]})
    loads.reload((8, 17), [8, 9, 10, 12, 13, 16], dead=[15])


def erased(loads):
    loads.load((10, 20), range(10, 20), values={"key": [b"%d" % n for n in range(10, 20)]})
    erase(loads.address, [b"11", b"14"], FS)


def erased_and_reloaded(loads):
    erased(loads)
    loads.reload((14, 16), [14, 15], values={"key": [b"14", b"15"]})


def reloaded_and_erased(loads):
    loaded(loads)
    loads.reload((12, 15), [12, 13])
    erase(loads.address, [b"11"], FS)


def replayed(loads):
    loaded(loads)
    rows, letters = load_table(loads.address, FS), load_table(dead_letters_dir(loads.address), FS)
    lineage = {"kind": REPLAY_KIND, "number": 1, "letters": {"id-1": {"0": [[15, 16]]}}}
    rows.commit([loads.write(loads.address, [15])], expected={}, transactions={REPLAY_APP_ID: 1}, lineage=lineage)
    finish_replay(rows, letters, FS)


def compacted(loads):
    loaded(loads)
    compact(loads.address, FS, SystemClock())
    vacuum(loads.address, FS, retention_hours=0)


def beside_a_former_ledger(loads):
    loaded(loads)
    table = load_table(loads.address, FS)
    former = {FORMER_LEDGERS_PROPERTY: json.dumps([ledger_of(table).name]), GENERATION_PROPERTY: "1"}
    table.configure(former, expected={}, transactions={}, lineage={"kind": "ledger"})
    loads.load((11, 18), [11, 12, 13, 15, 16, 17], keeps=True)


def newest_by_key(loads):
    loads.load((10, 20), [*ROWS], dead=[15], keeps=True, values={"key": [b"%d" % n for n in ROWS]},
               upsert={"inserted": len(ROWS), "updated": 0, "deleted": 0})  # fmt: skip


HISTORIES = [
    loaded,
    loaded_in_part,
    missing_accepted,
    reloaded,
    erased,
    erased_and_reloaded,
    reloaded_and_erased,
    replayed,
    compacted,
    beside_a_former_ledger,
]
FAULTS = {
    "none": ([], []),
    "missing": ([THERE], []),
    "doubled": ([], [THERE]),
    "unexpected": ([], [ABSENT]),
    "cancelled": ([THERE], [ABSENT]),
}


@pytest.fixture(params=HISTORIES, ids=lambda history: history.__name__)
def loads(request, any_address):
    loads = Loads(any_address)
    request.param(loads)
    return loads


def damage(loads, fault):
    """Deletes and adds rows as another engine does."""
    deleted, added = FAULTS[fault]
    for offset in deleted:
        delete_elsewhere(loads.address, f"partition = 0 and offset = {offset}")
    if added:
        loads.add(added, values={"key": [b"added"] * len(added)})


@pytest.mark.parametrize("window", [3, 1 << 20])
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_each_history_is_found_by_its_offsets(loads, fault, window):
    damage(loads, fault)
    deleted, added = FAULTS[fault]
    findings = audit(loads.address, window_offsets=window)
    wrong = {
        **dict.fromkeys(deleted, "1 offsets are not there"),
        **{offset: "1 offsets are there, and gave no record or were erased" for offset in added if offset == ABSENT},
        **{offset: "1 offsets are doubled" for offset in added if offset == THERE},
    }
    assert len(findings) == len(wrong)
    for offset, what in wrong.items():
        [finding] = [finding for finding in findings if f"partition 0: {what}: {offset}" in finding]
        command = f"reload events --table {loads.address} --partition 0 --from-offset {offset}"
        assert "into another table" in finding or f"{command} --until-offset {offset + 1}`" in finding
        for file in load_table(loads.address, FS).files():
            assert (f"in {file}" in finding or f", {file}" in finding) == (offset in added and has(file, offset))


def has(file, offset):
    return offset in pq.read_table(file, columns=["offset"]).column("offset").to_pylist()


@pytest.mark.parametrize("fault", FAULTS)
def test_the_newest_load_is_judged_by_its_offsets(any_address, fault):
    loads = Loads(any_address)
    loaded(loads)
    damage(loads, fault)
    audited = audit_newest_load(loads.address)
    deleted, added = FAULTS[fault]
    found = [offset for offset in (THERE, ABSENT) if any(f": {offset}" in finding for finding in audited.findings)]
    assert found == sorted([*deleted, *added])


def test_a_row_that_should_not_be_there_is_found_among_newest_records(any_address):
    loads = Loads(any_address, PROPERTIES | {"millrace.mode": "upsert"})
    newest_by_key(loads)
    assert audit(loads.address) == []
    damage(loads, "cancelled")
    [finding] = audit(loads.address)
    assert finding.startswith(f"partition 0: 1 offsets are there, and gave no record or were erased: {ABSENT}, in /")


def test_a_letter_that_should_not_be_there_is_found(any_address):
    loads = Loads(any_address)
    loaded(loads)
    beside = dead_letters_dir(loads.address)
    erase(loads.address, [b"11"], FS)
    letters = load_table(beside, FS)
    file = loads.write(beside, [ABSENT], schema=letters.schema)
    letters.commit([file], expected={}, transactions={}, lineage={"kind": "other"})
    [finding] = audit(loads.address)
    assert f"erased: {ABSENT}, in {letters.root}/part-" in finding


def large(loads):
    """Gaps without a pattern, more than a lineage keeps."""
    offsets = [n for n in range(20_000) if n * n % 7919 < 4000]
    loads.load((0, 20_000), offsets, keeps=True)
    [name] = named_by(load_table(loads.address, FS).lineage())
    return Path(loads.directory, name)


def test_a_file_of_offsets_that_is_damaged_or_gone_is_never_complete(any_address):
    loads = Loads(any_address)
    file = large(loads)
    assert audit(loads.address) == []
    content = file.read_bytes()
    for damaged in (content[:-1], content[:99] + bytes([content[99] ^ 1]) + content[100:]):
        file.write_bytes(damaged)
        [finding] = audit(loads.address)
        assert finding.startswith("partition 0: 20000 offsets may have given a record or none: 0, 1, 2, 3, 4, …: ")
        assert f"{file}: CRC-32 is " in finding
        assert audit_newest_load(loads.address).findings == (finding,)
    file.unlink()
    assert f"{file}: the table's history names this file, but it is not there" in audit(loads.address)[0]
    loads.reload((0, 20_000), range(0, 20_000, 2))
    assert audit(loads.address) == []


def test_vacuum_removes_files_of_offsets_that_no_commit_names(any_address):
    loads = Loads(any_address)
    file = large(loads)
    orphan = file.with_name("crashed-1.offsets")
    orphan.write_bytes(file.read_bytes())
    assert vacuum(loads.address, FS, retention_hours=1).files == ()
    assert vacuum(loads.address, FS, retention_hours=0).files == ("_lineage/crashed-1.offsets",)
    assert file.exists()
    assert audit(loads.address) == []
