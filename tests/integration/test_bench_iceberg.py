"""The benchmarks of Iceberg tables in their shortest form: every figure is measured."""

import pytest

from millrace.errors import SetupError
from millrace_benchmarks import commits, harness
from millrace_benchmarks.iceberg_connect import find_iceberg_connect
from millrace_benchmarks.in_iceberg import loads_into_iceberg
from millrace_benchmarks.load_topics import Topic
from millrace_benchmarks.sink_faults import faults
from millrace_support.iceberg_rest import JARS

TOPIC = Topic("load-100", "100 B", 100, 4)
FAULTS = [
    "killed before its commit: rows lost, of 100,000",
    "killed before its commit: rows doubled, of 100,000",
    "joined by another before its commit: rows lost, of 100,000",
    "joined by another before its commit: rows doubled, of 100,000",
]


@pytest.fixture(scope="module")
def has_sink():
    try:
        return bool(find_iceberg_connect())
    except SetupError:
        return False


def test_commits_are_measured_beside_delta_by_each_catalog(tmp_path):
    peer = commits.Peer.REST if any(JARS.glob("iceberg-open-api-*.jar")) else None
    figures = commits.run(tmp_path, peer, marks=(2, 3))
    assert len(figures) == 2 * 3 * (1 if peer is None else 2)
    assert all(figure.value > 0 and figure.yardstick_value > 0 for figure in figures)
    assert figures[0].name == "commit 2, Iceberg by the embedded catalog"


def test_loads_into_iceberg_are_measured_beside_delta_and_the_sink(tmp_path, has_sink):
    figures = loads_into_iceberg(tmp_path, [TOPIC], beside_connect=has_sink, rounds=1)
    yardsticks = ["Delta", "Kafka Connect's sink"] if has_sink else ["Delta"]
    assert [(figure.yardstick, figure.value > 0) for figure in figures] == [(one, True) for one in yardsticks]


def test_faults_lose_and_double_no_row_of_a_load(tmp_path, has_sink):
    if not has_sink:
        pytest.skip("`make iceberg-connect` brings the sink")
    found = {figure.name: figure for figure in faults(tmp_path / "faults")}
    assert {name: figure.value for name, figure in found.items()} == dict.fromkeys(FAULTS, 0)
    shown = {name for name, figure in found.items() if figure.yardstick_value > 0}
    assert shown == {FAULTS[0], FAULTS[3]}  # the sink has them: it loses rows, and doubles some


def test_a_format_has_peers_of_its_own():
    assert harness.formats("load") == ("iceberg",)
    assert harness.formats("fetch") == ()
    assert harness.peers("load", "iceberg") == ("connect",)
    assert harness.peers("load") == ("spark",)
    with pytest.raises(KeyError):
        harness.peers("load", "hudi")
