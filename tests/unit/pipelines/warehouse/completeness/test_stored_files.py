"""The deep audit against flipped bits: each is found, its rows are named, and a reload reads no damaged byte."""

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from millrace.clock import SystemClock
from millrace.errors import WarehouseError
from millrace.records.checksum import crc32c
from millrace_pipelines.warehouse.completeness.stored_files import audit_stored_files, portion
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.keys.removal import ErasedKeys, replace_ranges
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.maintenance import compact
from millrace_pipelines.warehouse.rewrite import blocks_of, read_rows
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_support.loads import FS, Loads

VALUES = {"value": [b"value-%d" % n * 20 for n in range(500)], "key": [b"%d" % n for n in range(500)]}


def loaded(address):
    made = Loads(address)
    made.load((0, 500), range(500), values=VALUES)
    made.load((500, 510), range(500, 508), dead=[508, 509])
    return made


@pytest.fixture
def loads(any_address):
    return loaded(any_address)


@pytest.fixture
def in_delta(tmp_path):
    return loaded(str(tmp_path / "table"))


def flip(path, position, bit=0):
    with path.open("r+b") as file:
        file.seek(position)
        [byte] = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


def place_of(path, column):
    """Returns a position inside the last page of a column."""
    group = pq.read_metadata(path).row_group(0)
    chunk = next(group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == column)
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    return first + chunk.total_compressed_size - 3


def large_file(loads):
    return max(loads.files(), key=lambda path: path.stat().st_size)


def test_digests_are_those_of_the_bytes(loads):
    expected = {path.name: f"{crc32c(path.read_bytes()):#010x}" for path in loads.files()}
    assert load_table(loads.address, FS).digests() == expected


def test_checkpoints_keep_the_digests(in_delta):
    table = load_table(in_delta.directory, FS)
    before = table.digests()
    table.create_checkpoint()
    for commit in Path(in_delta.directory, "_delta_log").glob("*.json"):
        commit.unlink()
    assert load_table(in_delta.directory, FS).digests() == before


def test_a_file_without_a_digest_is_read_page_by_page(in_delta):
    path = large_file(in_delta)
    commit = next(one for one in Path(in_delta.directory, "_delta_log").glob("*.json") if path.name in one.read_text())
    commit.write_text(commit.read_text().replace("crc32c", "other"))
    stored = audit_stored_files(in_delta.directory, fs=FS)
    assert (stored.undigested, stored.findings) == (1, ())
    flip(path, place_of(path, "value"))
    [finding] = audit_stored_files(in_delta.directory, fs=FS).findings
    assert finding.startswith(f"{path}: can't be read; partition 0, offsets 0-499, column value; ")


def test_a_whole_table_has_no_findings(loads):
    stored = audit_stored_files(loads.address, fs=FS)
    assert (stored.files, stored.undigested, stored.findings) == (3, 0, ())
    assert stored.bytes == sum(path.stat().st_size for path in (*loads.files(), *letters(loads)))


def letters(loads):
    return Loads(dead_letters_dir(loads.address)).files()


@pytest.mark.soak(rounds=200, minutes=2)
def test_each_flipped_bit_is_found(loads, rounds, tmp_path):
    path = large_file(loads)
    content = path.read_bytes()
    for seed in rounds:
        chance = random.Random(seed)
        flip(path, chance.randrange(len(content)), chance.randrange(8))
        findings = audit_stored_files(loads.address, fs=FS).findings
        assert findings, f"seed {seed}"
        assert all(f"{path}: " in finding and "0-499" in finding for finding in findings), findings
        path.write_bytes(content)


@pytest.mark.parametrize("column", ["value", "key", "offset", "partition"])
def test_a_finding_names_file_rows_column_and_command(loads, column):
    path = large_file(loads)
    flip(path, place_of(path, column))
    [finding] = audit_stored_files(loads.address, fs=FS).findings
    assert finding.startswith(f"{path}: its CRC-32C is 0x")
    assert f"; partition 0, offsets 0-499, column {column}; " in finding
    assert finding.endswith(
        f"`millrace warehouse reload events --table {loads.address} --partition 0 --from-offset 0 --until-offset 500`"
        " reads the file's rows again"
    )


@pytest.mark.parametrize("column", ["value", "key", "offset", "partition"])
def test_a_rewrite_refuses_damaged_pages(loads, column):
    path = large_file(loads)
    flip(path, place_of(path, column))
    table = load_table(loads.address, FS)
    with pytest.raises(WarehouseError, match=r"can't be read: .*audit --deep"):
        list(blocks_of(table, path.name))
    with pytest.raises(WarehouseError, match="can't be read"):
        list(read_rows(table, path.name))


@pytest.mark.parametrize("column", ["value", "key", "offset", "partition"])
def test_a_damaged_file_is_replaced_unread(loads, column):
    path = large_file(loads)
    flip(path, place_of(path, column))
    span = OffsetRange(0, 0, 500)
    table = load_table(loads.address, FS)
    done = replace_ranges(
        table, "reload", FS, ranges=[span], claimed=[span], staged=[], erased=ErasedKeys.of(table.lineage())
    )
    assert ([file.name for file in done.removed], done.removed_rows[0], done.added) == ([path.name], 500, [])


def test_compaction_does_not_carry_damage_on(loads):
    path = large_file(loads)
    flip(path, place_of(path, "value"))
    version = load_table(loads.address, FS).version
    with pytest.raises(WarehouseError, match="can't be read"):
        compact(loads.address, FS, SystemClock())
    assert load_table(loads.address, FS).version == version


def test_a_file_that_is_gone_or_cut_short_is_found(loads):
    first, second = loads.files()
    first.unlink()
    second.write_bytes(second.read_bytes()[:-9])
    findings = audit_stored_files(loads.address, fs=FS).findings
    assert [f"{path}: " in " ".join(findings) for path in (first, second)] == [True, True]


def test_portions_look_at_each_file_once(loads):
    looked = [audit_stored_files(loads.address, portion(number), FS).files for number in range(7)]
    assert sum(looked) == 3
    assert [audit_stored_files(loads.address, portion(number), FS).files for number in range(7, 14)] == looked
