"""The benchmark of failover in its shortest form: every row is measured."""

from millrace_benchmarks import failover
from millrace_benchmarks.failover import FailoverEffort, Kills

SHORTEST = FailoverEffort(kills=(Kills(6, 2, 1.0, 2.0),), session_timeout_ms=10_000)


def test_every_figure_of_failover_is_measured(tmp_path):
    median, longest = failover.run(tmp_path, effort=SHORTEST)
    assert median.name == "6 partitions, the leader dies: until others lead, median of 2"
    assert longest.name == "6 partitions, the leader dies: until others lead, the longest"
    assert 0 < median.value <= longest.value
