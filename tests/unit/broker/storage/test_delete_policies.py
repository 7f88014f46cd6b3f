"""Delete policies: found by entry point in installed packages, made for a log's settings, and none stops another."""

import sys
import tomllib
from pathlib import Path

import pytest

from millrace.errors import InvalidConfigError
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.cluster.config_sources import BrokerLayers, check_live, check_topic_config
from millrace_broker.startup.options import parse_options
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_broker.storage.retention import BUILT_IN, GROUP, check_policies
from millrace_support.clock import ManualClock

PYPROJECT = Path(__file__).parents[4] / "pyproject.toml"
NOW_MS = 1_700_000_000_000
POLICIES = """
class KeepNewest:
    def __init__(self, config):
        self.limit_bytes = 2 * config.segment_bytes

    def reason(self, segment, log):
        return "older than the two newest" if log.size_bytes > self.limit_bytes else None


class Broken:
    def __init__(self, config):
        pass

    def reason(self, segment, log):
        raise ZeroDivisionError("no such luck")


class Mumbling(Broken):
    def reason(self, segment, log):
        return True


def unmade(config):
    raise RuntimeError("it can not be made")
"""
ENTRY_POINTS = f"""
[{GROUP}]
keep-newest = their_policies:KeepNewest
broken = their_policies:Broken
mumbling = their_policies:Mumbling
unmade = their_policies:unmade
absent = their_policies:NotThere
time = their_policies:Broken
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Another package with policies, as pip would have installed it."""
    site = tmp_path / "site-packages"
    info = site / "their_policies-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-policies\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    (site / "their_policies.py").write_text(POLICIES, encoding="utf-8")
    monkeypatch.syspath_prepend(site)
    yield
    sys.modules.pop("their_policies", None)


def segments_after_retention(folder, policies, **config):
    """Five segments of one batch each, the oldest of an hour ago, and the reasons for which some went."""
    batches = [encode_batch([NewRecord(bytes(100), None, NOW_MS - (5 - n) * 720_000)]) for n in range(5)]
    (folder / "log").mkdir(parents=True)
    settings = LogConfig(segment_bytes=len(batches[0]), millrace_delete_policies=policies, **config)
    log = Log(OsFileSystem(), ManualClock(NOW_MS), str(folder / "log"), TopicPartition("t", 0), settings)
    for batch in batches:
        log.append(batch, leader_epoch=0)
    reasons = log.apply_retention().reasons
    log.close()
    return reasons


def test_time_and_size_are_registered_as_any_other():
    declared = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["entry-points"][GROUP]
    assert declared == dict(BUILT_IN)
    assert list(declared) == LogConfig().millrace_delete_policies.split(",") == ["time", "size"]


@pytest.mark.parametrize(
    ("policies", "reasons"),
    [
        ("time,size", ["older than retention.ms"] * 2 + ["above retention.bytes"]),
        ("time", ["older than retention.ms"] * 2),
        ("size", ["above retention.bytes"] * 3),
        ("", []),
    ],
)
def test_a_log_goes_by_the_policies_that_it_names(tmp_path, policies, reasons):
    size_bytes = len(encode_batch([NewRecord(bytes(100), None, NOW_MS)]))
    limits = {"retention_ms": 2_500_000, "retention_bytes": 2 * size_bytes}
    assert list(segments_after_retention(tmp_path, policies, **limits)) == reasons


def test_a_policy_of_another_package_is_found_and_obeyed(tmp_path, installed):
    check_policies(LogConfig(millrace_delete_policies="keep-newest"))
    assert list(segments_after_retention(tmp_path, "keep-newest")) == ["older than the two newest"] * 3


@pytest.mark.parametrize("bad", ["broken", "mumbling", "unmade", "absent", "nobody"])
def test_a_policy_that_fails_deletes_nothing_and_stops_no_other(tmp_path, installed, caplog, bad):
    assert segments_after_retention(tmp_path / "alone", bad) == ()
    assert f"delete policy {bad}" in caplog.text
    assert list(segments_after_retention(tmp_path / "with", f"{bad},keep-newest")) == ["older than the two newest"] * 3


def test_a_failing_policy_is_told_once_a_pass(tmp_path, installed, caplog):
    segments_after_retention(tmp_path, "broken,time")
    assert caplog.text.count("ZeroDivisionError: no such luck") == 1


def test_no_package_takes_the_name_of_a_built_in_policy(tmp_path, installed, caplog):
    assert len(segments_after_retention(tmp_path, "time", retention_ms=2_500_000)) == 2
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("nobody", "nobody"),
        ("time,nobody", "nobody"),
        ("absent", "NotThere"),
        ("unmade", "it can not be made"),
        ("no such name", "Invalid value"),
    ],
)
def test_a_policy_that_can_not_be_had_is_refused_where_it_is_named(tmp_path, installed, value, said):
    named = {"millrace.delete.policies": value}
    with pytest.raises(InvalidConfigError, match=said) as failure:
        check_topic_config(BrokerLayers({}, {}, {}), named)
    assert "millrace.delete.policies" in str(failure.value)
    with pytest.raises(InvalidConfigError, match=said):
        check_live(*next(iter(named.items())))
    with pytest.raises(InvalidConfigError, match=said):
        parse_options(["--standalone", "--data", str(tmp_path), "--set", f"millrace.delete.policies={value}"])
