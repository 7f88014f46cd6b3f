"""The loop of loads: what it tries again, and what ends it."""

import threading

import pytest

from millrace.errors import BrokerUnreachableError
from millrace_pipelines.warehouse.errors import LoadFailedError, SchemaError
from millrace_pipelines.warehouse.load.continuous import load_continuously
from millrace_pipelines.warehouse.load.report import LoadReport


class Loop:
    """Plays loads that fail or succeed, and stops after the last."""

    def __init__(self, *outcomes):
        self.outcomes, self.stop, self.told = list(outcomes), threading.Event(), []

    def load(self):
        outcome = self.outcomes.pop(0)
        if not self.outcomes:
            self.stop.set()
        if isinstance(outcome, Exception):
            raise outcome
        return LoadReport(topic="t", table="d", lag={0: outcome})

    def loaded(self, report):
        self.told.append(report.lag[0])

    def failed(self, failure):
        self.told.append((type(failure.error).__name__, failure.attempt))

    def run(self, monkeypatch, **how):
        monkeypatch.setattr("millrace_pipelines.warehouse.load.continuous.MAX_PAUSE_S", 0.0)
        load_continuously(self.load, self.stop, self, interval_s=0, **how)
        return self.told


def test_a_loop_retries_what_may_pass_and_counts_from_zero_after_a_success(monkeypatch):
    loop = Loop(5, BrokerUnreachableError("gone"), LoadFailedError("task"), 3, LoadFailedError("task"), 0)
    assert loop.run(monkeypatch, attempts=3) == [
        5, ("BrokerUnreachableError", 1), ("LoadFailedError", 2), 3, ("LoadFailedError", 1), 0
    ]  # fmt: skip


def test_a_loop_ends_with_what_does_not_pass(monkeypatch):
    with pytest.raises(SchemaError):
        Loop(1, SchemaError("other"), 2).run(monkeypatch)
    with pytest.raises(LoadFailedError):
        Loop(*[LoadFailedError("task")] * 3, 2).run(monkeypatch, attempts=3)
    assert Loop(1, LoadFailedError("while it was told to stop")).run(monkeypatch) == [1]
