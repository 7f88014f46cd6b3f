"""The bench's own C client: what it says was answered is in the log, and what is refused is said."""

import shutil
from contextlib import nullcontext

import pytest

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.errors import ClientError
from millrace_benchmarks import raw
from millrace_benchmarks.harness import Figure
from millrace_benchmarks.subjects import Subject

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler, the program cc")


@pytest.fixture
def subject(broker):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("raw", 2)
    return Subject("Millrace", broker.bootstrap, broker.pid, broker.data_dir, 0.0)


@pytest.mark.parametrize(
    ("connections", "in_flight", "records", "size_bytes"),
    [(1, 1, 1, 100), (1, 64, 1, 100), (1, 4, 100, 9000), (50, 2, 1, 10)],
)
def test_every_request_is_answered_and_stored_once(subject, connections, in_flight, records, size_bytes):
    frames = [raw.produce_frame("raw", index, bytes(size_bytes), records) for index in range(2)]
    result = raw.produce(subject, "raw", frames, requests=400, in_flight=in_flight, connections=connections)
    assert 0 < result.p50_us <= result.p99_us <= result.p999_us <= result.seconds * 1e6
    with Cluster(subject.bootstrap) as cluster:
        ends = [SimpleConsumer(cluster).latest("raw", index) for index in range(2)]
    assert sum(ends) == 400 * records
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    ("partition", "expected"), [(0, nullcontext()), (7, pytest.raises(ClientError, match="refused"))]
)
def test_a_refused_request_is_an_error(subject, partition, expected):
    with expected:
        raw.produce(subject, "raw", [raw.produce_frame("raw", partition, b"value")], requests=10)


@pytest.mark.parametrize(
    ("value", "bounds", "goal"),
    [
        (12.0, {"at_least": 1.1}, "≥ 1.10 met"),
        (10.0, {"at_least": 1.1}, "≥ 1.10 missed"),
        (4.0, {"at_most": 0.5}, "≤ 0.50 met"),
        (6.0, {"at_most": 0.5}, "≤ 0.50 missed"),
        (6.0, {}, ""),
    ],
)
def test_a_goal_says_whether_it_is_met(value, bounds, goal):
    assert Figure(name="rate", value=value, unit="/s", yardstick="peer", yardstick_value=10.0, **bounds).goal == goal
