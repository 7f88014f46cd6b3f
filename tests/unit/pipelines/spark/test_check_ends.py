"""Logs that end below what was read of them: the newest leader tells, and it alone."""

import pytest

from millrace_pipelines.spark import brokers
from millrace_pipelines.spark.brokers import LogOffsets, TopicSource, check_ends

SOURCE = TopicSource("127.0.0.1:1", "events")
LOG = {0: LogOffsets(0, 12, 12, 2), 1: LogOffsets(0, 5, 9, 2)}


class Newest:
    """The newest leaders."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def newest_log_offsets(self, topic, partitions):
        assert topic == "events"
        return {one: LogOffsets(0, 25, 25, 3) for one in partitions}


@pytest.fixture(autouse=True)
def _newest(monkeypatch):
    monkeypatch.setattr(brokers, "brokers_of", lambda _: Newest())


def test_a_log_that_is_long_enough_is_believed():
    assert check_ends(SOURCE, LOG, {0: 12, 1: 9, 7: 3}) == LOG


def test_of_a_short_log_the_newest_leader_tells():
    assert check_ends(SOURCE, LOG, {0: 20, 1: 9}) == LOG | {0: LogOffsets(0, 25, 25, 3)}
