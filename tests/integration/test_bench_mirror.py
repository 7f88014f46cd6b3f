"""The benchmark of the mirror in its shortest form: every row is printed, and measured; beside MirrorMaker 2, too."""

import pytest

from millrace.errors import SetupError
from millrace.records.compression import Codec
from millrace_benchmarks import mirror
from millrace_benchmarks.harness import show
from millrace_benchmarks.kafka_broker import find_kafka
from millrace_benchmarks.mirror import Behind, MirrorEffort, Peer
from millrace_benchmarks.mirror_lag import SteadyLoad
from millrace_benchmarks.mirrormaker2 import find_mirrormaker2

SHORTEST = MirrorEffort(
    rounds=1, behind=(Behind(100, 150, 40), Behind(1000, 50, 40, Codec.LZ4)), steady=SteadyLoad(200, 100, 0.5, 1.0)
)
NAMES = [
    *("behind, 100 B, 150 a batch", "· the same", "· CPU of the mirror for a GB"),
    *("behind, 1000 B, 50 a batch, lz4", "· the same", "· CPU of the mirror for a GB"),
    *("200 records/s, lag p50", "200 records/s, lag p99"),
]
OURS = ["Millrace to Millrace, following", "Millrace to Millrace, copying"]
BETWEEN_KAFKAS = "Apache Kafka 4.1 to 4.1, copying"


def check(figures, routes, printed):
    assert [one.name for one in figures] == [f"{name}: {route}" for name in NAMES for route in routes]
    assert all(one.value > 0 for one in figures if "CPU" not in one.name)
    assert all(one.name in printed for one in figures)


def test_every_figure_of_the_mirror_is_measured(tmp_path, capsys):
    figures = mirror.run(tmp_path, effort=SHORTEST)
    show("mirror", figures, None)
    check(figures, OURS, capsys.readouterr().out)


def test_every_figure_beside_mirrormaker2_is_measured(tmp_path, capsys):
    try:
        find_kafka("4.1")
        find_mirrormaker2()
    except SetupError as error:
        pytest.skip(str(error))
    figures = mirror.run(tmp_path, Peer.MIRRORMAKER2, SHORTEST)
    show("mirror", figures, None)
    check(figures, [BETWEEN_KAFKAS, *OURS], capsys.readouterr().out)
    assert all(one.yardstick == "MirrorMaker 2" and one.yardstick_value for one in figures if "CPU" not in one.name)
