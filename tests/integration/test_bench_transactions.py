"""The benchmark of transactions in its shortest form: every row is printed, and measured."""

import json
import shutil

import pytest

from millrace_benchmarks import transactions
from millrace_benchmarks.harness import show
from millrace_benchmarks.transactions import FULL, TransactionsEffort

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler, the program cc")

SHORTEST = TransactionsEffort(
    rounds=1,
    warm_up_commits=1,
    commits=2,
    commits_of_ten=1,
    large_commits=1,
    transactions=2,
    records=20_000,
    raw_loads=tuple(load._replace(requests=3000 // load.records) for load in FULL.raw_loads),
)
COMMITS = {
    *(f"one producer, {name}" for name in ("commit p50", "commit p99", "commits", "broker CPU a commit")),
    "ten producers, commits",
    "1,000 records in each, records",
}
COSTS = {
    *(f"Millrace, {load.name}, idempotent" for load in FULL.raw_loads),
    *(f"Millrace, librdkafka, {kind}: records" for kind in ("idempotent", "transactional")),
}
PROCESSOR = {
    *(f"Millrace, {load.name}, idempotent: broker CPU" for load in FULL.raw_loads),
    *(f"Millrace, librdkafka, {kind}: broker CPU" for kind in ("idempotent", "transactional")),
}


def test_every_figure_of_transactions_is_measured(tmp_path, capsys):
    figures = {one.name: one for one in transactions.run(tmp_path, effort=SHORTEST)}
    assert set(figures) == COMMITS | COSTS | PROCESSOR
    assert all(one.value >= 0 if "CPU" in name else one.value > 0 for name, one in figures.items())  # CPU goes by ticks
    assert all(figures[name].yardstick_value > 0 for name in COSTS)
    show("transactions", list(figures.values()), tmp_path / "figures.json")
    printed = capsys.readouterr().out
    assert all(name in printed for name in figures)
    assert {one["name"] for one in json.loads((tmp_path / "figures.json").read_text())["figures"]} == set(figures)
