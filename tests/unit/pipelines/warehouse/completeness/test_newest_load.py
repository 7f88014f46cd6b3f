"""The audit of the newest load alone: each damage of that load gives its line, and older loads are not looked at."""

import json

import pyarrow.parquet as pq
import pytest

from millrace.clock import SystemClock
from millrace_pipelines.warehouse.completeness import audit as audit_module
from millrace_pipelines.warehouse.completeness.audit import LoadAudit, audit, audit_newest_load
from millrace_pipelines.warehouse.dead_letters import REPLAY_APP_ID, REPLAY_KIND, finish_replay
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.ledger.ledger import FORMER_LEDGERS_PROPERTY, GENERATION_PROPERTY, ledger_of
from millrace_pipelines.warehouse.maintenance import compact
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_support.findings import told
from millrace_support.loads import FS, PROPERTIES, Loads


@pytest.fixture
def loads(any_address):
    """Two loads; the newest has two partitions in its ranges, rows of one, and a dead letter."""
    loads = Loads(any_address)
    loads.load((0, 5), range(5))
    loads.load((5, 10), [5, 6, 8], dead=[7])
    return loads


def findings(loads):
    return told(audit_newest_load(loads.address).findings)


def test_a_sound_load(loads):
    audited = audit_newest_load(loads.address)
    assert audited == LoadAudit(version=2, offsets=5, rows=3, dead_letters=1, is_counted=True)


def test_a_table_without_a_load(any_address):
    assert audit_newest_load(Loads(any_address).address) == LoadAudit()


def test_damage_of_an_older_load_is_left_to_the_audit_of_all(loads):
    [older] = [n for n, path in enumerate(loads.files()) if pq.read_metadata(path).num_rows == 5]
    loads.remove(which=older)
    assert audit(loads.address)
    assert findings(loads) == []


def test_a_row_that_is_lost_and_one_that_is_doubled(loads):
    loads.load((10, 13), [10, 10, 12])
    assert findings(loads) == ["partition 0: 1 offsets are doubled: 10", "partition 0: 1 offsets are not there: 11"]
    loads.load((13, 16), [13], ranges=[{"partition": 0, "from_offset": 13, "until_offset": 16, "rows": 3}])
    assert findings(loads) == ["partition 0: 2 offsets are not there: 14, 15"]


def test_an_offset_that_an_older_file_has_too(loads):
    loads.load((10, 14), range(10, 14))
    loads.add([12])
    assert "partition 0: 1 offsets are doubled: 12" in findings(loads)


def test_a_dead_letter_that_is_lost(loads):
    loads.remove(dead_letters_dir(loads.address))
    assert findings(loads) == ["partition 0, offsets 5-9: 3 rows and dead letters, the loads say 4; not there: 7, 9"]


def test_a_file_that_is_gone(loads):
    [path] = [path for path in loads.files() if pq.read_metadata(path).num_rows == 3]
    path.unlink()
    assert findings(loads)[0] == f"{path}: the table names this file, but it is not there"


def test_rows_outside_of_the_ranges(loads):
    loads.load((10, 12), [10, 11, 3])
    assert findings(loads)[0] == "partition 0: 1 rows in the load's files are outside of its ranges: 3"


def test_a_ledger_that_moved_alone(loads):
    load_table(loads.address, FS).commit([], expected={}, transactions={"millrace/id-1/0": 12}, lineage={"kind": "x"})
    assert findings(loads) == ["partition 0: the loads end at offset 10, the ledger at 12"]


def test_a_gap_before_the_load(loads):
    compact(loads.address, FS, SystemClock())
    loads.load((0, 4), [0, 1, 2, 3], partition=1)
    loads.load((12, 14), [12, 13])
    assert findings(loads) == ["partition 0: a load began at 12, the one before ended at 10"]
    loads.load((4, 6), [4, 5], partition=1)
    assert findings(loads) == []


def test_an_account_that_does_not_add_up(loads):
    loads.load((10, 13), [10, 12], ranges=[{"partition": 0, "from_offset": 10, "until_offset": 13, "rows": 2}])
    assert findings(loads) == ["partition 0, offsets 10-12: the load accounts for 2 of 3 offsets"]


def test_compaction_and_replays_leave_a_sound_load_sound(loads):
    compact(loads.address, FS, SystemClock())
    assert findings(loads) == []
    rows, letters = load_table(loads.address, FS), load_table(dead_letters_dir(loads.address), FS)
    lineage = {"kind": REPLAY_KIND, "number": 1, "letters": {"id-1": {"0": [[7, 8]]}}}
    rows.commit([loads.write(loads.address, [7])], expected={}, transactions={REPLAY_APP_ID: 1}, lineage=lineage)
    assert findings(loads) == []
    finish_replay(rows, letters, FS)
    assert findings(loads) == []


def test_nothing_is_counted_after_an_erasure(loads):
    loads.add([], lineage={"kind": "erase", "absent": [{"partition": 0, "offsets": 1}]})
    assert not audit_newest_load(loads.address).is_counted


def test_nothing_is_counted_by_key_or_beside_rows_of_a_former_ledger(tmp_path, loads):
    newest = Loads(str(tmp_path / "newest"), PROPERTIES | {"millrace.mode": "upsert"})
    newest.load((0, 9), [1, 3], ranges=[{"partition": 0, "from_offset": 0, "until_offset": 9, "rows": 9}])
    audited = audit_newest_load(newest.address)
    assert (audited.is_counted, audited.findings) == (False, ())
    table = load_table(loads.address, FS)
    former = {FORMER_LEDGERS_PROPERTY: json.dumps([ledger_of(table).name]), GENERATION_PROPERTY: "1"}
    table.configure(former, expected={}, transactions={}, lineage={"kind": "ledger"})
    loads.load((6, 10), range(6, 10))
    audited = audit_newest_load(loads.address)
    assert (audited.is_counted, audited.findings, audited.version) == (False, (), 4)


def test_the_topic_is_asked_where_a_broker_is_named(loads, monkeypatch):
    asked = []

    def topic_findings(ledger, bootstrap, client_config):
        asked.append((ledger.topic, bootstrap))
        yield "topic events does not exist"

    monkeypatch.setattr(audit_module, "topic_findings", topic_findings)
    assert audit_newest_load(loads.address, bootstrap="host:1").findings == ("topic events does not exist",)
    assert asked == [("events", "host:1")]


def test_only_files_that_may_have_the_load_s_offsets_are_opened(loads, monkeypatch):
    opened = []
    look = audit_module.Reader.footer
    monkeypatch.setattr(
        audit_module.Reader, "footer", lambda self, name, said: opened.append(name) or look(self, name, said)
    )
    for start in range(10, 100, 10):
        loads.load((start, start + 10), range(start, start + 10))
    assert findings(loads) == []
    assert len(set(opened)) == 1
