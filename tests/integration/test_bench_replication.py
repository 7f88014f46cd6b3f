"""The benchmark of replication in its shortest form: every row is printed, and measured."""

from millrace_benchmarks import replication
from millrace_benchmarks.harness import show
from millrace_benchmarks.replication import Moves, ReplicationEffort

SHORTEST = ReplicationEffort(
    rounds=1,
    loads=((100, 2000),),
    latency_records=20,
    latency_interval_s=0.005,
    behind_bytes=20_000_000,
    moves=(Moves(6, 1, 1.0, 2.0),),
    session_timeout_ms=10_000,
)
MAY_BE_NOTHING = {"· CPU of the leader for a GB", "· CPU of the follower for a GB"}
"""Zero if this process is held up after the follower's first byte, so that all is copied before it reads the clocks."""

NAMES = [
    "produce, 100 B, acks=all",
    "· CPU of all brokers for a GB of values",
    "200 records/s, acks=all, p50",
    "200 records/s, acks=all, p99",
    "catch-up of 20 MB",
    "· the same",
    "· the same",
    "· the same",
    "· CPU of the leader for a GB",
    "· CPU of the follower for a GB",
    "6 partitions, the leader stops: until others lead",
    "6 partitions, the leader dies: until others lead",
    "· of it after the registration's end",
]


def test_every_figure_of_replication_is_measured(tmp_path, capsys):
    figures = replication.run(tmp_path, effort=SHORTEST)
    assert [one.name for one in figures] == NAMES
    assert all(one.value >= 0 if one.name in MAY_BE_NOTHING else one.value > 0 for one in figures)
    show("replication", figures, None)
    printed = capsys.readouterr().out
    assert all(name in printed for name in NAMES)
