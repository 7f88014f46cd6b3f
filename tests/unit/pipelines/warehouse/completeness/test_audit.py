"""The audit against tables that were damaged on purpose: each damage gives its line, a sound table none."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace.errors import WarehouseError
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.dead_letters import REPLAY_APP_ID, REPLAY_KIND, finish_replay
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.ledger.ledger import FORMER_LEDGERS_PROPERTY, GENERATION_PROPERTY, ledger_of
from millrace_pipelines.warehouse.payload.outcome import DEAD_LETTER_SCHEMA
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_support.findings import told
from millrace_support.loads import FS, PROPERTIES, Loads


def audited(directory, **options):
    """Returns what is found, without files and commands, which have tests of their own."""
    return told(audit(directory, **options))


@pytest.fixture
def loads(any_address):
    return Loads(any_address)


@pytest.fixture
def sound(loads):
    """Two partitions, several loads, dead letters, skipped and lost offsets."""
    loads.load((5, 10), [5, 6, 8], dead=[7])
    loads.load((0, 4), [0, 1, 2, 3], partition=1)
    loads.load((15, 18), [15, 16, 17], lost=[{"partition": 0, "from_offset": 10, "until_offset": 15}])
    return loads


@pytest.mark.parametrize("window", [1, 2, 3, 7, 1 << 20])
def test_a_sound_table_has_no_findings(sound, window):
    assert audited(sound.address, window_offsets=window) == []


def test_a_file_that_is_gone(sound):
    path = sound.files()[0]
    path.unlink()
    found = audited(sound.address)
    assert found[0] == f"{path}: the table names this file, but it is not there"
    assert len(found) > 1


def test_a_file_that_was_cut_short(sound):
    path = sound.files()[0]
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-10])
    found = audited(sound.address)
    assert found[0] == f"{path}: has {size - 10} bytes, the table's log says {size}"
    assert found[1].startswith(f"{path}: can't be read: ")


def test_a_file_whose_pages_are_damaged(sound):
    path = next(path for path in sound.files() if pq.read_metadata(path).num_rows == 4)
    content = bytearray(path.read_bytes())
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[4:footer] = bytes(255 - byte for byte in content[4:footer])
    path.write_bytes(content)
    found = audited(sound.address)
    assert found[0].startswith(f"{path}: can't be read: ")
    assert found[1:] == ["partition 1: 4 offsets are not there: 0, 1, 2, 3"]


def test_a_file_that_was_written_over(sound):
    path = next(path for path in sound.files() if pq.read_metadata(path).num_rows == 4)
    pq.write_table(pq.read_table(path, schema=ENVELOPE_SCHEMA).slice(0, 3), path)
    assert f"{path}: has 3 rows, the table's log says 4" in audited(sound.address)
    assert "partition 1: 1 offsets are not there: 3" in audited(sound.address)


@pytest.mark.parametrize("window", [2, 1 << 20])
def test_a_doubled_row(sound, window):
    sound.add([6])
    assert audited(sound.address, window_offsets=window) == [
        "partition 0: 1 offsets are doubled: 6",
        "partition 0, offsets 5-9: 5 rows and dead letters, the loads say 4; not there: 9",
    ]


def test_a_doubled_load(sound):
    sound.add(range(5), 1)
    assert "partition 1: 4 offsets are doubled: 0, 1, 2, 3" in audited(sound.address)
    assert "partition 1, outside the ledger's offsets 0-3: 1 rows: 4" in audited(sound.address)


def test_a_row_that_became_another(loads):
    loads.load((0, 3), [0, 1, 1])
    assert audited(loads.address) == [
        "partition 0: 1 offsets are doubled: 1",
        "partition 0: 1 offsets are not there: 2",
    ]


def test_a_range_that_is_not_in_the_history(loads):
    loads.load((0, 5), range(5))
    loads.load((5, 9), range(5, 9), claimed=False)
    loads.load((9, 12), range(9, 12))
    assert audited(loads.address) == [
        "partition 0: a load began at 9, the one before ended at 5",
        "partition 0, of no load: 4 rows: 5, 6, 7, 8",
    ]


def test_ranges_that_overlap(loads):
    loads.load((0, 5), range(5))
    loads.load((5, 7), [5, 6], ranges=[{"partition": 0, "from_offset": 4, "until_offset": 7, "rows": 3}])
    assert "partition 0: a load began at 4, the one before ended at 5" in audited(loads.address)


def test_a_ledger_that_moved_alone(loads):
    loads.load((0, 5), range(5))
    load_table(loads.address, FS).commit([], expected={}, transactions={"millrace/id-1/0": 9}, lineage={"kind": "x"})
    assert audited(loads.address) == ["partition 0: the loads end at offset 5, the ledger at 9"]


def test_a_dead_letter_that_is_lost(sound):
    sound.remove(dead_letters_dir(sound.address))
    assert audited(sound.address) == [
        "partition 0, offsets 5-9: 3 rows and dead letters, the loads say 4; not there: 7, 9"
    ]


def test_a_dead_letter_that_is_a_row_too(sound):
    sound.add([7])
    assert "partition 0: 1 offsets are doubled: 7" in audited(sound.address)


def test_a_dead_letter_that_was_replayed_is_a_row(sound):
    rows, letters = load_table(sound.address, FS), load_table(dead_letters_dir(sound.address), FS)
    lineage = {"kind": REPLAY_KIND, "number": 1, "letters": {"id-1": {"0": [[7, 8]]}}}
    rows.commit([sound.write(sound.address, [7])], expected={}, transactions={REPLAY_APP_ID: 1}, lineage=lineage)
    assert audited(sound.address) == []  # its mark is still to be made
    assert finish_replay(rows, letters, FS) == 1
    assert audited(sound.address) == []
    sound.add([7])
    assert "partition 0: 1 offsets are doubled: 7" in audited(sound.address)


def test_dead_letters_ahead_of_the_ledger(sound):
    beside = dead_letters_dir(sound.address)
    file = sound.write(beside, [30], schema=DEAD_LETTER_SCHEMA)
    load_table(beside, FS).commit([file], expected={}, transactions={}, lineage={"kind": "load"})
    assert audited(sound.address) == []


def test_skipped_offsets_that_are_told_wrong(loads):
    loads.load(
        (0, 5), [0, 1, 4], ranges=[{"partition": 0, "from_offset": 0, "until_offset": 5, "rows": 4, "control": 1}]
    )
    assert audited(loads.address) == [
        "partition 0, offsets 0-4: 3 rows and dead letters, the loads say 4; not there: 2, 3"
    ]


def test_a_load_whose_own_account_does_not_add_up(loads):
    loads.load((0, 3), [0, 2], ranges=[{"partition": 0, "from_offset": 0, "until_offset": 3, "rows": 2}])
    assert audited(loads.address) == ["partition 0, offsets 0-2: the load accounts for 2 of 3 offsets"]


def test_rows_of_an_unknown_partition(sound):
    sound.add([0, 1], 7)
    assert audited(sound.address) == ["partition 7, which the ledger doesn't know: 2 rows: 0, 1"]


def test_many_findings_are_shown_by_the_first(loads):
    loads.load(
        (0, 100),
        range(0, 100, 2),
        ranges=[{"partition": 0, "from_offset": 0, "until_offset": 100, "rows": 60, "aborted": 40}],
    )
    assert audited(loads.address) == [
        "partition 0, offsets 0-99: 50 rows and dead letters, the loads say 60; not there: 1, 3, 5, 7, 9, …"
    ]


def test_what_was_erased_is_told_by_the_erasure(sound):
    sound.remove(which=next(n for n, path in enumerate(sound.files()) if pq.read_metadata(path).num_rows == 4))
    lost = "partition 1: 4 offsets are not there: 0, 1, 2, 3"
    assert audited(sound.address) == [lost]
    sound.add([0, 1], 1, {"kind": "erase", "absent": [{"partition": 1, "offsets": 2}]})
    assert audited(sound.address) == []
    sound.add([2], 1)
    assert audited(sound.address) == [
        "partition 1: 3 rows and dead letters, the loads less what was removed since say 2; not there: 3"
    ]


def test_a_ledger_after_another_may_have_the_same_offsets_again(sound):
    before = ledger_of(load_table(sound.address, FS))
    load_table(sound.address, FS).configure(
        {FORMER_LEDGERS_PROPERTY: json.dumps([before.name]), GENERATION_PROPERTY: "1"},
        expected={},
        transactions={},
        lineage={"kind": "ledger"},
    )
    sound.load((16, 20), [16, 17, 18, 19])
    assert audited(sound.address) == []
    sound.add([16])
    assert audited(sound.address) == ["partition 0: 1 offsets are doubled: 16"]


@pytest.fixture
def newest(any_address):
    """A table of newest records: fifty keys, each with the last of its two records; one key was deleted."""
    loads = Loads(any_address, PROPERTIES | {"millrace.mode": "upsert"})
    claim = {"partition": 0, "from_offset": 0, "until_offset": 102, "rows": 101, "dead_letters": 1}
    counts = {"inserted": 51, "updated": 0, "deleted": 1}
    loads.load((0, 102), range(0, 100, 2), dead=[101], ranges=[claim], upsert=counts,
               values={"key": [b"%d" % n for n in range(0, 100, 2)]})  # fmt: skip
    return loads


def test_newest_records(newest):
    assert audited(newest.address) == []
    newest.add([], lineage={"kind": "erase", "absent": []})
    assert audited(newest.address) == []


@pytest.mark.parametrize("damage", ["nulls", "no column"])
def test_rows_that_lost_their_offsets(sound, damage):
    path = next(path for path in sound.files() if pq.read_metadata(path).num_rows == 4)
    rows = pq.read_table(path, schema=ENVELOPE_SCHEMA)
    place = rows.schema.get_field_index("offset")
    nulls = pa.nulls(rows.num_rows, pa.int64())
    pq.write_table(rows.set_column(place, "offset", nulls) if damage == "nulls" else rows.remove_column(place), path)
    found = audited(sound.address)
    assert f"{path}: has rows without their partition or offset" in found
    assert "partition 1: 4 offsets are not there: 0, 1, 2, 3" in found


def test_a_history_that_is_no_json_is_named(tmp_path):
    sound = Loads(str(tmp_path / "table"))
    sound.load((0, 5), range(5))
    sound.load((5, 6), [5])
    log = Path(sound.address) / "_delta_log"
    commit = log / f"{2:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["millrace.lineage"] = "{"
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(WarehouseError, match="of version 2 is no JSON object"):
        audited(sound.address)


def test_newest_records_whose_file_is_gone(newest):
    [path] = newest.files()
    path.unlink()
    assert audited(newest.address) == [
        f"{path}: the table names this file, but it is not there",
        "0 rows, the keys that were inserted less those deleted and erased say 50",
    ]


def test_newest_records_have_no_key_twice(newest):
    newest.add([51, 53], values={"key": [b"50", b"new"]})
    assert audited(newest.address) == [
        "52 rows, the keys that were inserted less those deleted and erased say 50",
        "1 keys have more than one row, though the table has the newest record of each: b'50'",
    ]


def test_newest_records_that_are_lost(newest):
    newest.remove()
    newest.remove(dead_letters_dir(newest.address))
    assert audited(newest.address) == [
        "0 rows, the keys that were inserted less those deleted and erased say 50",
        "0 dead letters, the loads say 1",
    ]


def test_newest_records_that_were_erased(newest):
    newest.remove(lineage={"kind": "erase", "absent": [{"partition": 0, "offsets": 50}]})
    assert audited(newest.address) == []
