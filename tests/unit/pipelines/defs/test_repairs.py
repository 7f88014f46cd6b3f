"""What a person may give the jobs that mend tables, what of it is refused, in words, and what a mended table shows."""

from logging import WARNING

import dagster as dg
import pytest
from pydantic import ValidationError

from millrace.addresses import LOOPBACK
from millrace.errors import InvalidConfigError
from millrace.ports import free_port
from millrace_pipelines.declaration.attributes import Check
from millrace_pipelines.defs.repairs import BackfillConfig, EraseConfig, KeyFormat, ReloadConfig
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.warehouse.ledger.plan import Selection
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_support.declared import LOAD_ALL, cluster_of, definitions_of
from millrace_support.loads import Loads

OPTIONS = LoadOptions(topic="flights", table="t", bootstrap="b", max_records_per_run=5)


def test_tables_are_those_of_the_topics_once():
    cluster = cluster_of("cluster: lake\ntables: [{topic: a}, {topic: b}]", "c")
    assert [table.topic for table in ReloadConfig(topics=["b", "a", "b"]).tables(cluster)] == ["b", "a"]
    with pytest.raises(InvalidConfigError, match=r"^topics: c, d: no topic of lake that becomes a table$"):
        ReloadConfig(topics=["c", "a", "d"]).tables(cluster)
    with pytest.raises(ValidationError, match="topics"):
        ReloadConfig(topics=[])


def test_a_reload_selects_offsets_or_times():
    assert ReloadConfig(topics=["a"], from_offset=3, until_offset=7, partitions=[1]).selection() == Selection(
        partitions=(1,), from_offset=3, until_offset=7
    )
    times = ReloadConfig(topics=["a"], from_time="1970-01-02", until_time="1970-01-02T00:00:01+01:00").selection()
    assert (times.from_time_ms, times.until_time_ms) == (86_400_000, 82_801_000)
    with pytest.raises(InvalidConfigError, match=r"^until_time: 'noon' is not a time in ISO 8601"):
        ReloadConfig(topics=["a"], until_time="noon").selection()
    assert BackfillConfig(topics=["a"]).selection() == Selection(until_table_begins=True)


def test_a_reload_takes_its_whole_range_and_only_what_is_accepted():
    applied = ReloadConfig(topics=["a"], accept_lost_offsets=True).applied(OPTIONS)
    assert (applied.max_records_per_run, applied.accept_lost_offsets, applied.accept_keyless_records) == (
        None, True, False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "key_format", "expected"),
    [
        (["ä"], "text", ["ä".encode()]),
        (["00ff"], "hex", [b"\x00\xff"]),
        (["AP8="], "base64", [b"\x00\xff"]),
        (["0"], "hex", "keys: '0' is not hex: "),
        (["AP8"], "base64", "keys: 'AP8' is not base64: "),
    ],
)
def test_keys_are_bytes_in_their_format(keys, key_format, expected):
    config = EraseConfig(topics=["users"], keys=keys, key_format=KeyFormat[key_format])
    if isinstance(expected, list):
        assert config.key_bytes() == expected
    else:
        with pytest.raises(InvalidConfigError, match=f"^{expected}"):
            config.key_bytes()


def test_checks_that_need_a_broker_fail_no_repair_where_none_answers(tmp_path, monkeypatch):
    monkeypatch.setattr("millrace_pipelines.defs.repairs.Check", [Check.DEAD_LETTERS, Check.LAG])
    Loads(str(tmp_path / "events")).load((0, 2), [0, 1], values={"key": [b"UA", b"AA"]})
    millrace = MillraceResource(
        bootstrap=f"{LOOPBACK}:{free_port()}",
        admin_url="",
        warehouse_dir=str(tmp_path),
        schema_dir="",
        master="",
    )
    job = definitions_of(cluster_of(LOAD_ALL, "events"), millrace).resolve_job_def("erase_millrace")
    config = {"ops": {"millrace_erase_keys": {"config": {"topics": ["events"], "keys": ["UA"]}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(config, instance=instance, resources={"millrace": millrace})
        assert result.success
        [materialization] = result.asset_materializations_for_node("millrace_erase_keys")
        assert materialization.metadata["rows erased"].value == 1
        [evaluation] = result.get_asset_check_evaluations()
        assert (evaluation.check_name, evaluation.passed) == ("dead_letters", True)
        logged = [record.user_message for record in instance.all_logs(result.run_id) if record.level == WARNING]
    [warning] = logged
    assert warning.startswith("millrace/table/events: not all checks were made: no broker answers at ")
