"""Ten faults end to end: the alert fires in a real Prometheus, a panel shows it, and the runbook's way out ends both.

All faults take place at once, each in its own thread. MILLRACE_MINUTE_S says how many seconds a minute takes in the
alert rules: half a one in `make prometheus`. With 60 the test takes an hour, and pytest needs --timeout 7200.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from millrace_ops.monitoring.grafana import DASHBOARDS, RULES, monitoring_files
from millrace_support import monitored_faults as faults
from millrace_support.prometheus import SCRAPE_INTERVAL, find_prometheus, hurried, prometheus

GIVEN = os.environ.get("MILLRACE_MINUTE_S")
pytestmark = pytest.mark.skipif(
    GIVEN is None or not find_prometheus(),
    reason="takes minutes, and needs Prometheus: make prometheus",
)

MINUTE_S = float(GIVEN or "0.5")
PATIENCE_S = max(300, 60 * MINUTE_S)
INTERVAL = SCRAPE_INTERVAL if MINUTE_S < 10 else "5s"
RATE = "5s" if MINUTE_S < 10 else "1m"
PAUSE_S = 0.1
PANELS = {panel.title: panel for one in DASHBOARDS for section in one.sections for panel in section.panels}


class Case(NamedTuple):
    """A fault, the alert that it fires, the panel that shows it, and by which values."""

    fault: Callable[[Path], faults.Fault]
    alert: str
    panel: str
    shows: Callable[[float], bool]


CASES = [
    Case(faults.disk_full, "DiskIsFull", "Share of the disk that is free", lambda value: value < 0.1),
    Case(faults.folder_lost, "DataDirectoryFailed", "Data directories offline", lambda value: value == 1),
    Case(faults.zookeeper_gone, "ZooKeeperSessionLost", "Sessions with ZooKeeper", lambda value: value == 0),
    Case(faults.consumer_stuck, "GroupIsStuck", "Lag by group and topic", lambda value: value >= 5),
    Case(faults.lag_grows, "GroupFallsBehind", "Lag by group and topic", lambda value: value > 10_000),
    Case(faults.transaction_hangs, "TransactionHangs", "Age of the oldest open transaction", lambda value: value > 1),
    Case(faults.load_fails, "LoadFails", "Failures, by error", lambda value: value > 0),
    Case(faults.small_files, "TableHasSmallFiles", "Files of a table", lambda value: value == faults.SMALL_FILES),
    Case(faults.slow_client, "ClientsDoNotDrain", "Memory of requests and replies", lambda value: value > 400e6),
    Case(faults.clock_moved, "ClockMoved", "Clock ahead of Prometheus' clock", lambda value: value > 3000),
]


class Trial:
    """One fault from its beginning to its end."""

    def __init__(self, case, server, fault, target):
        self._case = case
        self._server = server
        self._fault = fault
        self._target = target

    def run(self):
        """Returns how many seconds it took until the alert fired and, after the way out, until it had ended."""
        self._await(lambda: self._values() is not None)
        assert not self._is_shown()
        assert not self._fires()
        next(self._fault)
        fired_s = self._await(lambda: self._fires() and self._is_shown())
        next(self._fault)
        cleared_s = self._await(lambda: not self._fires() and not self._is_shown())
        return fired_s, cleared_s

    def _fires(self):
        return self._server.query(f'ALERTS{{alertname="{self._case.alert}", alertstate="firing"}}')

    def _is_shown(self):
        return any(map(self._case.shows, self._values() or []))

    def _values(self):
        """The values that the panel draws; None where it has no data yet."""
        query = PANELS[self._case.panel].queries[0][0]
        for variable, value in {"$instance": self._target, "$__rate_interval": RATE}.items():
            query = query.replace(variable, value)
        return [float(one["value"][1]) for one in self._server.query(query)] or None

    def _await(self, is_true):
        began = time.monotonic()
        while not is_true():
            assert time.monotonic() - began < PATIENCE_S, self._case
            time.sleep(PAUSE_S)
        return time.monotonic() - began


def name_of(case):
    return case.fault.__name__


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What becomes of each fault, by its name, as a future."""
    directory = tmp_path_factory.mktemp("faults")
    begun = {name_of(case): case.fault(directory / name_of(case)) for case in CASES}
    for name in begun:
        (directory / name).mkdir()
    rules = hurried(monitoring_files()[RULES], MINUTE_S)
    with ThreadPoolExecutor(len(CASES)) as pool:
        try:
            targets = dict(zip(begun, pool.map(next, begun.values()), strict=True))
            jobs = {f"millrace-{name}": target for name, target in targets.items()}
            with prometheus(directory, jobs, rules, INTERVAL) as server:
                trials = {name_of(one): Trial(one, server, begun[name_of(one)], targets[name_of(one)]) for one in CASES}
                running = {name: pool.submit(trial.run) for name, trial in trials.items()}
                yield running
                for one in running.values():
                    one.exception()
        finally:
            list(pool.map(lambda fault: fault.close(), begun.values()))


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_alert_fires_a_panel_shows_it_and_the_way_out_ends_both(case, outcomes):
    fired_s, cleared_s = outcomes[name_of(case)].result()
    print(  # noqa: T201 -- shown with -rP
        f"{case.alert}: fired after {fired_s:.0f} s, ended {cleared_s:.0f} s after the way out"
    )
