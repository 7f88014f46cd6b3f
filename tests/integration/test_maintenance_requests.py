"""Maintenance on request, of a real broker: chosen topics, dry runs, reports segment by segment, and refusals."""

import json
import time
import urllib.error
import urllib.request

import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_support.admin_requests import change_request
from millrace_support.broker_properties import ON_REQUEST
from millrace_support.waiting import until

SMALL = {"segment.bytes": "1000", "file.delete.delay.ms": "0"}
DELETED = SMALL | {"retention.bytes": "3000"}
COMPACTED = SMALL | {"cleanup.policy": "compact"}
CHECK_INTERVAL = "log.retention.check.interval.ms"
REQUEST_INTERVAL = "maintenance.request.interval.ms"


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path / "broker", properties=ON_REQUEST) as broker:
        yield broker


@pytest.fixture
def quiet_broker(tmp_path):
    """A broker that writes nothing to the folders of topics by itself."""
    properties = ON_REQUEST | {"log.flush.scheduler.interval.ms": "3600000"}
    with BrokerProcess(tmp_path / "broker", properties=properties) as broker:
        yield broker


def asked(broker, path, body=None):
    """(status, the answer)."""
    request = change_request(broker, f"maintenance/{path}", b"" if body is None else json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def reports(broker, path, body=None):
    status, answer = asked(broker, path, body)
    assert status == 200, answer
    return answer["partitions"]


def fill(broker, topics):
    """Creates topics with their settings and ten segments, each of one batch of 900 bytes."""
    with Cluster(broker.bootstrap) as cluster:
        for topic, config in topics.items():
            Admin(cluster).create_topic(topic, 1, config=config)
            for number in range(10):
                SyncProducer(cluster).send(topic, 0, [NewRecord(bytes(900), key=b"%d" % (number % 2))])


def contents(broker, topic):
    """The bytes of each file of a topic."""
    return {path.name: path.read_bytes() for path in sorted((broker.data_dir / f"{topic}-0").iterdir())}


def log_files(broker, topic):
    return sorted((broker.data_dir / f"{topic}-0").glob("*.log"))


def segments(broker, topic):
    """Returns (base offset, size) of each segment; raises FileNotFoundError where one is deleted meanwhile."""
    return [(int(path.stem), path.stat().st_size) for path in log_files(broker, topic)]


def named(report):
    return [(one["base_offset"], one["size_bytes"]) for one in report["by_segment"]]


def test_a_dry_run_of_retention_says_what_retention_does_and_changes_nothing(quiet_broker):
    fill(quiet_broker, {"events": DELETED})
    files, before = contents(quiet_broker, "events"), segments(quiet_broker, "events")
    (planned,) = reports(quiet_broker, "retention?dry_run=true")
    assert contents(quiet_broker, "events") == files
    assert (planned["deleted_segments"], planned["segments"], planned["log_start_offset"]) == (6, 10, 0)
    (done,) = reports(quiet_broker, "retention")
    assert (done["deleted_segments"], done["segments"], done["log_start_offset"]) == (6, 4, 6)
    assert planned["by_segment"] == done["by_segment"]
    assert named(done) == before[:6]
    assert {one["reason"] for one in done["by_segment"]} == {"above retention.bytes"}
    assert done["reasons"] == ["above retention.bytes"] * 6
    assert done["deleted_bytes"] == sum(size for _, size in before[:6])
    assert segments(quiet_broker, "events") == before[6:]


def test_segments_that_records_were_deleted_from_go_for_that_reason(broker):
    fill(broker, {"events": SMALL})
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).delete_records("events", 0, 2)
    (done,) = reports(broker, "retention")
    assert [(one["base_offset"], one["reason"]) for one in done["by_segment"]] == [
        (0, "below the log start offset"),
        (1, "below the log start offset"),
    ]


def test_a_dry_run_of_compaction_names_the_segments_that_are_rewritten(quiet_broker):
    fill(quiet_broker, {"users": COMPACTED})
    files, before = contents(quiet_broker, "users"), segments(quiet_broker, "users")
    (planned,) = reports(quiet_broker, "compaction", {"dry_run": True})
    assert contents(quiet_broker, "users") == files
    assert (planned["passes"], planned["records_dropped"], planned["bytes_after"]) == (0, 0, planned["bytes_before"])
    (done,) = reports(quiet_broker, "compaction")
    assert planned["by_segment"] == done["by_segment"]
    assert named(done) == before[:-1]
    assert {one["reason"] for one in done["by_segment"]} == {"dirty ratio above min.cleanable.dirty.ratio"}
    assert done["bytes_after"] < done["bytes_before"] == done["dirty_bytes"]
    assert contents(quiet_broker, "users") != files


def test_what_is_not_due_is_compacted_on_request_only(broker):
    fill(broker, {"users": COMPACTED | {"min.cleanable.dirty.ratio": "1"}})
    assert reports(broker, "compaction?only_due=true") == []
    (done,) = reports(broker, "compaction")
    assert {one["reason"] for one in done["by_segment"]} == {"on request"}
    (again,) = reports(broker, "compaction")
    assert (again["passes"], again["by_segment"]) == (0, [])


@pytest.mark.broker_errors(r"offsets 3 to 3 are damaged")
def test_a_verification_tells_of_each_segment(broker):
    fill(broker, {"events": SMALL})
    damaged = broker.data_dir / "events-0" / f"{3:020}.log"
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 0xFF
    damaged.write_bytes(data)
    (planned,) = reports(broker, "verify?dry_run=true")
    assert (planned["segments"], planned["records"], planned["findings"]) == (10, 0, [])
    (done,) = reports(broker, "verify")
    assert planned["size_bytes"] == done["size_bytes"] == sum(size for _, size in segments(broker, "events"))
    assert named(planned) == named(done) == segments(broker, "events")
    assert [(one["records"], one["findings"]) for one in done["by_segment"]] == [
        (1, int(number == 3)) for number in range(10)
    ]


@pytest.mark.parametrize("action", ["retention", "compaction", "verify"])
def test_topics_are_chosen_by_name_or_pattern(broker, action):
    fill(broker, {"logs-eu": COMPACTED, "logs-us": COMPACTED, "users": COMPACTED})
    chosen = {
        "": {"logs-eu", "logs-us", "users"},
        "?topics=users": {"users"},
        "?topics=logs-*&dry_run=true": {"logs-eu", "logs-us"},
        "?topics=logs-*,users": {"logs-eu", "logs-us", "users"},
        "?topics=none-*": set(),
    }
    for query, expected in chosen.items():
        assert {one["topic"] for one in reports(broker, f"{action}{query}")} == expected, query


def test_what_makes_no_sense_is_refused_by_its_field(broker):
    fill(broker, {"events": DELETED})
    for query, body, error in (
        ("?topics=event,events,evnts", None, "topics: this broker has no log of 'event', 'evnts'"),
        ("?dry_run=perhaps", None, "dry_run: true or false is expected, not 'perhaps'"),
        ("", {"topic": ["events"]}, "topic: unknown field of retention, expected topics, dry_run"),
        ("", [], "the body is no JSON object"),
    ):
        assert asked(broker, f"retention{query}", body) == (400, {"action": "retention", "error": error})
    assert len(segments(broker, "events")) == 10


def test_the_brokers_own_timer_stands_back_while_requests_are_expected(tmp_path):
    properties = ON_REQUEST | {CHECK_INTERVAL: "20", "log.cleaner.backoff.ms": "20"}
    with BrokerProcess(tmp_path / "broker", properties=properties) as broker:
        fill(broker, {"events": DELETED, "users": COMPACTED})
        before = [segments(broker, topic) for topic in ("events", "users")]
        time.sleep(0.5)
        assert [segments(broker, topic) for topic in ("events", "users")] == before
        reports(broker, "retention")
        reports(broker, "compaction")
        assert len(segments(broker, "events")) == 4
        assert segments(broker, "users") != before[1]
        assert "own timer" not in broker.read_log()


def test_the_brokers_own_timer_steps_in_where_no_request_comes(tmp_path):
    properties = {CHECK_INTERVAL: "20", REQUEST_INTERVAL: "100"}
    with BrokerProcess(tmp_path / "broker", properties=properties) as broker:
        fill(broker, {"events": DELETED})
        until(lambda: len(log_files(broker, "events")) == 4)
        steps_in = f"retention has not been requested for 3 intervals of {REQUEST_INTERVAL}=100; the broker's own timer"
        stands_back = "retention is requested from outside again; the broker's own timer stands back"
        reports(broker, "retention?topics=events")  # what leaves work to the timer does not count
        reports(broker, "retention?dry_run=true")
        assert (broker.read_log().count(steps_in), broker.read_log().count(stands_back)) == (1, 0)
        reports(broker, "retention")
        assert broker.read_log().count(stands_back) == 1
        until(lambda: broker.read_log().count(steps_in) == 2)
