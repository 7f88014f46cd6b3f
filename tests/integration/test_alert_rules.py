"""Each alert fires in the series of its fault and no other does, and it ends when the fault has.

Series have a sample a minute: 5 minutes are well, 40 have the fault, 80 are well again.
"""

import pytest
import yaml

from millrace_ops.monitoring.grafana import RULES, monitoring_files
from millrace_support.prometheus import find_prometheus, promtool

pytestmark = pytest.mark.skipif(not find_prometheus(), reason="needs Prometheus: make prometheus")

BEFORE, IN_FAULT, AFTER = "4m", "44m", "124m"
GROWS = "0+10x124"
COUNTED = "0x4 0+1x39 40x79"
STOPS = "0+10x4 40x39 50+10x79"
GROUP = '{group="g", topic="t", partition="0"}'
LOG = '{topic="t", partition="0"}'

MIRRORED = '{source="east", topic="t", partition="0"}'
MIRRORED_RECORDS = 'millrace_mirror_records_total{source="east", topic="t"}'


def gauge(well, fault):
    return f"{well}x4 {fault}x39 {well}x79"


def slow(name, labels, bounds):
    """Returns the series of durations that lie in the second of two buckets during the fault, else in the first."""
    first, second = bounds
    return {
        f'{name}_bucket{{{labels}, le="{first}"}}': STOPS,
        f'{name}_bucket{{{labels}, le="{second}"}}': GROWS,
        f'{name}_bucket{{{labels}, le="+Inf"}}': GROWS,
    }


FAULTS = {
    "BrokerDown": {'up{job="millrace", instance="a"}': gauge(1, 0)},
    "NoController": {
        'millrace_active_controller_count{instance="a"}': gauge(1, 0),
        'millrace_active_controller_count{instance="b"}': "0x124",
    },
    "PartitionsWithoutLeader": {"millrace_offline_partitions_count": gauge(0, 3)},
    "WritesAreRefused": {"millrace_under_min_isr_partition_count": gauge(0, 2)},
    "ReplicasAreMissing": {"millrace_under_replicated_partitions": gauge(0, 2)},
    "RecordsMayBeLost": {"millrace_unclean_leader_elections_total": COUNTED},
    "ZooKeeperSessionLost": {"millrace_zookeeper_session_up": gauge(1, 0)},
    "DataDirectoryFailed": {'millrace_log_directory_online{directory="/a"}': gauge(1, 0)},
    "DiskIsFull": {"millrace_log_directory_refused_appends_total": COUNTED},
    "DiskFillsUp": {
        "millrace_log_directory_free_bytes": gauge(50, 5),
        "millrace_log_directory_total_bytes": "100x124",
    },
    "FlushesAreSlow": slow("millrace_log_flush_seconds", 'directory="/a"', ("1.0", "2.5")),
    "EventLoopIsHeldUp": slow("millrace_event_loop_delay_seconds", 'instance="a"', ("0.25", "0.5")),
    "ClockMoved": {'millrace_clock_seconds{instance="a"}': "0+60x4 3900+60x39 2700+60x79"},
    "RecordsFromTheFuture": {f"millrace_log_timestamp_ahead_seconds{LOG}": "_x4 90000x39 _x79"},
    "ClientsDoNotDrain": {"millrace_bytes_in_flight": gauge(0, 500_000_000)},
    "DescriptorsRunOut": {
        'process_open_fds{instance="a"}': gauge(100, 950),
        'process_max_fds{instance="a"}': "1000x124",
        'process_open_fds{instance="somebody else"}': "999x124",
        'process_max_fds{instance="somebody else"}': "1000x124",
        'millrace_build_info{instance="a"}': "1x124",
    },
    "CompactionFails": {"millrace_log_compaction_failures_total": COUNTED},
    "RecordsAreDamaged": {'millrace_log_directory_damaged_ranges{directory="/a"}': gauge(0, 2)},
    "ScrubberIsBehind": {
        'millrace_log_scrub_age_seconds{directory="/a"}': gauge(604_800, 1_300_000),
        'millrace_log_scrub_interval_seconds{directory="/a"}': "604800x124",
    },
    "GroupIsStuck": {
        f"millrace_log_end_offset{LOG}": GROWS,
        f"millrace_group_offset{GROUP}": "0+10x4 40x39 450+10x79",
    },
    "GroupFallsBehind": {
        f"millrace_log_end_offset{LOG}": "0+1000x44 45000x79",
        f"millrace_group_offset{GROUP}": "0+1000x4 4000+500x39 45000x79",
    },
    "TransactionHangs": {"millrace_transaction_longest_open_seconds": gauge(1, 1000)},
    "LoadFails": {'millrace_load_failures_total{error="StorageError"}': COUNTED},
    "LoadFallsBehind": {
        'millrace_load_lag_records{instance="a", topic="t"}': gauge(0, 50),
        'millrace_load_commits_total{instance="a"}': STOPS,
    },
    "LoadTakesLong": {
        "millrace_load_seconds_sum": "0+100x4 1000+1000x39 41000+100x79",
        "millrace_load_seconds_count": GROWS.replace("10", "1", 1),
    },
    "DeadLettersArrive": {"millrace_load_dead_letters_total": COUNTED},
    "TableFallsBehind": {'millrace_table_lag_records{table="/t", topic="t"}': "0x4 10000+1000x39 0x79"},
    "TableHasSmallFiles": {
        "millrace_table_files": gauge(10, 5000),
        "millrace_table_bytes": "50000000000x124",
    },
    "MirrorCannotReach": {
        'millrace_mirror_cluster_reachable{side="source", source="east", instance="a"}': "1x124",
        'millrace_mirror_cluster_reachable{side="source", source="east", instance="b"}': gauge(1, 0),
    },
    "MirrorHasNoLeader": {
        'millrace_mirror_leader{source="east", instance="a"}': gauge(1, 0),
        'millrace_mirror_leader{source="east", instance="b"}': "0x124",
    },
    "MirrorHasStopped": {'millrace_mirror_partitions_stopped{source="east", kind="purged"}': gauge(0, 2)},
    "MirrorStandsStill": {f"millrace_mirror_lag_records{MIRRORED}": gauge(0, 50), MIRRORED_RECORDS: STOPS},
    "MirrorFallsBehind": {f"millrace_mirror_lag_records{MIRRORED}": "0x4 10000+1000x39 0x79", MIRRORED_RECORDS: GROWS},
    "MirrorGroupsStay": {'millrace_mirror_group_faults{source="east"}': gauge(0, 1)},
}
FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'


def expected(at, *alerts):
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in alerts]
    return {"expr": FIRING, "eval_time": at, "exp_samples": samples}


def of_fault(alert, series):
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [expected(BEFORE), expected(IN_FAULT, alert), expected(AFTER)],
    }


def test_every_alert_fires_in_its_fault_alone_and_clears(tmp_path):
    rules = yaml.safe_load(monitoring_files()[RULES])
    assert [rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule] == [*FAULTS]
    (tmp_path / RULES).write_text(monitoring_files()[RULES])
    promtool("check", "rules", tmp_path / RULES)
    tests = {
        "rule_files": [RULES],
        "evaluation_interval": "1m",
        "tests": [of_fault(alert, series) for alert, series in FAULTS.items()],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    promtool("test", "rules", tmp_path / "tests.yml")


@pytest.mark.parametrize(
    ("alert", "series"),
    [
        (
            "DiskFillsUp",
            {"millrace_log_directory_free_bytes": "1000-10x60", "millrace_log_directory_total_bytes": "1000x60"},
        ),
        ("ClockMoved", {"millrace_clock_steps_total": "0x35 1x25"}),
        ("LoadFails", {'millrace_table_load_failing{table="/t", topic="t", error="StorageError"}': "_x4 1x56"}),
        ("LoadTakesLong", {'millrace_table_last_load_seconds{table="/t", topic="t"}': "20x4 900x56"}),
        ("DeadLettersArrive", {'millrace_table_dead_letters{table="/t", topic="t"}': "5x35 6x25"}),
        ("ScrubberIsBehind", {'millrace_log_scrub_failures_total{directory="/a"}': "0x35 1x25"}),
        ("MirrorHasStopped", {'millrace_mirror_topics{source="east", state="stopped"}': "1x60"}),
        ("TransactionHangs", {f"millrace_last_stable_offset_lag{LOG}": "5x60"}),
    ],
)
def test_other_signs_of_the_same_fault(tmp_path, alert, series):
    (tmp_path / RULES).write_text(monitoring_files()[RULES])
    fault = of_fault(alert, series) | {"promql_expr_test": [expected(IN_FAULT, alert)]}
    tests = {"rule_files": [RULES], "evaluation_interval": "1m", "tests": [fault]}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    promtool("test", "rules", tmp_path / "tests.yml")
