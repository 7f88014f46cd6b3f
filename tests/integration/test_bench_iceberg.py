"""The benchmarks of Iceberg tables in their shortest form: every figure is measured."""

import pytest

from millrace.errors import SetupError
from millrace_benchmarks import commits, harness
from millrace_benchmarks.iceberg_connect import find_iceberg_connect
from millrace_benchmarks.in_iceberg import loads_into_iceberg
from millrace_benchmarks.load_topics import Topic
from millrace_support.iceberg_rest import JARS

TOPIC = Topic("load-100", "100 B", 100, 4)


def test_commits_are_measured_beside_delta_by_each_catalog(tmp_path):
    peer = commits.Peer.REST if any(JARS.glob("iceberg-open-api-*.jar")) else None
    figures = commits.run(tmp_path, peer, marks=(2, 3))
    assert len(figures) == 2 * 3 * (1 if peer is None else 2)
    assert all(figure.value > 0 and figure.yardstick_value > 0 for figure in figures)
    assert figures[0].name == "commit 2, Iceberg by the embedded catalog"


def test_loads_into_iceberg_are_measured_beside_delta_and_the_sink(tmp_path):
    try:
        beside_connect = bool(find_iceberg_connect())
    except SetupError:
        beside_connect = False
    figures = loads_into_iceberg(tmp_path, [TOPIC], beside_connect=beside_connect, rounds=1)
    yardsticks = ["Delta", "Kafka Connect's sink"] if beside_connect else ["Delta"]
    rates, lost_or_doubled = figures[: len(yardsticks)], figures[len(yardsticks) :]
    assert [(figure.yardstick, figure.value > 0) for figure in rates] == [(one, True) for one in yardsticks]
    assert [figure.value for figure in lost_or_doubled] == ([0, 0] if beside_connect else [])


def test_a_format_has_peers_of_its_own():
    assert harness.formats("load") == ("iceberg",)
    assert harness.formats("fetch") == ()
    assert harness.peers("load", "iceberg") == ("connect",)
    assert harness.peers("load") == ("spark",)
    with pytest.raises(KeyError):
        harness.peers("load", "hudi")
