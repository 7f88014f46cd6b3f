"""Whether logs are those that a table was loaded from, where leaders change and one has not heard of it."""

from types import SimpleNamespace

import pytest

from millrace.errors import BrokerUnreachableError
from millrace_pipelines.spark.brokers import LogOffsets, TopicDescription, TopicSource
from millrace_pipelines.spark.errors import LogTruncatedError
from millrace_pipelines.warehouse.ledger.ledger import Ledger, LedgerEntry
from millrace_pipelines.warehouse.ledger.plan import plan_load
from millrace_pipelines.warehouse.load import loader
from millrace_pipelines.warehouse.load.options import AcceptOptions, LoadOptions

SOURCE = TopicSource("127.0.0.1:1", "events")
LEDGER = Ledger("events", "id", {0: LedgerEntry(0, 20, 3)})  # loaded up to 20, whose last batch is of epoch 3


class Leaders:
    """The brokers: `ends` are the ends of epochs in the log of the leader that answers, `newest_ends` in the newest."""

    def __init__(self, ends, newest=None, newest_ends=None):
        self.ends, self.newest, self.newest_ends = ends, newest, newest_ends

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def newest_log_offsets(self, _, partitions):
        assert list(partitions) == [0]
        if self.newest is None:
            raise BrokerUnreachableError("broker 3 is away")
        self.ends = self.newest_ends
        return {0: self.newest}

    def epoch_ends(self, _, leader_epochs):
        return {index: self.ends[epoch] for index, epoch in leader_epochs.items() if epoch in self.ends}


@pytest.fixture
def change(monkeypatch):
    """Calls `ledger_change` for what the brokers say."""

    def decide(log, leaders, *, accept_truncated_log=False):
        monkeypatch.setattr(loader, "brokers_of", lambda _: leaders)
        tables = SimpleNamespace(ledger=LEDGER, dead_letters=None)
        accepted = AcceptOptions(accept_truncated_log=accept_truncated_log)
        return loader.ledger_change(SOURCE, tables, TopicDescription("id", (0,)), {0: log}, accepted)

    return decide


def test_a_former_leader_of_an_older_epoch_is_not_judged(change):
    newest = LogOffsets(0, 25, 25, 3)
    assert change(LogOffsets(0, 12, 12, 2), Leaders({}, newest, {3: 25})) is None


def test_a_former_leader_whose_high_watermark_stood_still_is_not_judged(change):
    """It wrote the last batch itself, and lost its followers before it knew that they had the batch."""
    assert change(LogOffsets(0, 12, 12, 3), Leaders({3: 22})) is None


def test_a_leader_that_took_over_between_two_questions_is_no_cut(change):
    """The leader of epoch 3 has told the offsets, and the leader of epoch 4 tells where epoch 3 ends."""
    assert change(LogOffsets(0, 22, 22, 3), Leaders({3: 21})) is None


def test_a_log_that_the_newest_leader_has_cut_is_cut(change):
    leaders = Leaders({3: 12}, LogOffsets(0, 30, 30, 4), {3: 12})
    with pytest.raises(LogTruncatedError, match="the log agrees up to offset 12"):
        change(LogOffsets(0, 30, 30, 4), leaders)
    assert change(LogOffsets(0, 30, 30, 4), leaders, accept_truncated_log=True).ledger.next_offset(0) == 12


def test_a_leader_of_an_older_epoch_that_is_the_newest_has_another_log(change):
    restored = LogOffsets(0, 30, 30, 1)
    with pytest.raises(LogTruncatedError, match="the log agrees up to offset 0"):
        change(restored, Leaders({}, restored, {}))


def test_nothing_is_said_to_be_cut_while_a_broker_does_not_answer(change):
    with pytest.raises(BrokerUnreachableError):
        change(LogOffsets(0, 12, 12, 2), Leaders({}))


@pytest.fixture
def looked(monkeypatch, tmp_path):
    """Returns a function that looks as a load does, with one leader epoch of the metadata and another of the log."""

    def find(log, metadata_epoch):
        description = TopicDescription("id", (0,), {0: metadata_epoch})
        monkeypatch.setattr(loader, "describe_topic", lambda _: description)
        monkeypatch.setattr(loader, "log_offsets", lambda *_: {0: log})
        monkeypatch.setattr(loader, "look_at_tables", lambda *_, **__: SimpleNamespace(ledger=LEDGER))
        return loader.look(LoadOptions(topic="events", table=str(tmp_path), bootstrap="127.0.0.1:1"), None)

    return find


def checked(monkeypatch, found, epoch, ends):
    monkeypatch.setattr(loader, "describe_topic", lambda _: TopicDescription("id", (0,), {0: epoch}))
    monkeypatch.setattr(loader, "epoch_ends", lambda _, epochs: {index: ends[one] for index, one in epochs.items()})
    loader.check_same_logs(SOURCE, found.description, plan_load(LEDGER, found.log))


def test_what_was_read_is_judged_by_the_epoch_that_goes_with_its_offsets(monkeypatch, looked):
    """The metadata was of epoch 3, which ends at 20; the leader of epoch 4 has told the offsets, up to 30."""
    found = looked(LogOffsets(0, 30, 30, 4), metadata_epoch=3)
    checked(monkeypatch, found, 4, {3: 20, 4: 30})
    with pytest.raises(LogTruncatedError, match="the log was cut at offset 24 while it was loaded"):
        checked(monkeypatch, found, 5, {4: 24})


def test_a_leader_that_lacks_what_the_table_has_says_nothing_of_later_cuts(monkeypatch, looked):
    found = looked(LogOffsets(0, 12, 12, 2), metadata_epoch=2)
    checked(monkeypatch, found, 4, {2: 12})
