"""The benchmark of security in its shortest form: every row is printed, and measured."""

import shutil

import pytest

from millrace_benchmarks import security
from millrace_benchmarks.harness import show
from millrace_benchmarks.quota_rates import QuotaLoad
from millrace_benchmarks.security import FULL, SecurityEffort

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler, the program cc")

SHORTEST = SecurityEffort(
    rounds=1,
    loads=((100, 2000),),
    client_processes=2,
    handshakes=4,
    logins=4,
    access_lists=20,
    raw_load=FULL.raw_load._replace(requests=3000),
    raw_rounds=1,
    # No whole number of records of 10,000 bytes gives exactly this rate, so the deviation is above zero.
    quotas=QuotaLoad(bytes_per_second=101_000, after_s=0.1, for_s=0.5, burst_s=0.1),
)
NAMES = [
    "librdkafka produce by TLS, 100 B",
    "· broker CPU for a GB of values",
    "librdkafka consume by TLS, 100 B",
    "· broker CPU for a GB of values",
    "TLS handshakes",
    "· broker CPU for one",
    "logins by SCRAM-SHA-512",
    "· broker CPU for one",
    "deviation from the quota of a producer",
    "deviation from the quota of a consumer",
    "20 access lists, 1-record requests, 64 in flight",
    "· broker CPU for a million requests",
]


def test_every_figure_of_security_is_measured(tmp_path, capsys):
    figures = security.run(tmp_path, effort=SHORTEST)
    assert [one.name for one in figures] == NAMES
    assert all(one.value > 0 for one in figures)
    show("security", figures, None)
    printed = capsys.readouterr().out
    assert all(name in printed for name in NAMES)
