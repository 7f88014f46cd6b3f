"""The judge of retention knows the high watermark also where it can't read up to there."""

from types import SimpleNamespace
from typing import cast

import pytest

from millrace_broker.storage import Log, TopicPartition
from millrace_support.simulation.workloads.drawn import LIMITS
from millrace_support.simulation.workloads.history import History
from millrace_support.simulation.workloads.retention_judge import RetentionJudge

KEY = TopicPartition("limited", 0)
HIGH_WATERMARK = 11


@pytest.mark.parametrize(("start", "is_wrong"), [(HIGH_WATERMARK, False), (HIGH_WATERMARK + 1, True)])
def test_a_log_may_begin_above_what_a_damaged_leader_lets_the_judge_read(start: int, is_wrong: bool) -> None:
    anomalies: list[str] = []
    history = History(KEY, anomalies.append, written=None)
    history.high_watermark = HIGH_WATERMARK
    judge = RetentionJudge(history, LIMITS, anomalies.append)
    log = cast("Log", SimpleNamespace(log_start_offset=start, size_bytes=0))
    judge.looks_at(broker_id=3, process=1, log=log, now_ms=0)
    assert (history.end, bool(anomalies)) == (0, is_wrong)


@pytest.mark.parametrize("read_later", [(), (9,)])
def test_what_a_damaged_leader_did_not_let_the_judge_read_may_be_deleted_where_retention_has_come_there(
    read_later: tuple[int, ...],
) -> None:
    """Also where the judge has read on behind it."""
    history = History(KEY, pytest.fail, written=None)
    history.high_watermark = HIGH_WATERMARK
    history.batches.update(dict.fromkeys((0, 1, 2, 3, *read_later), b""))
    history.end = max(history.batches) + 1
    judge = RetentionJudge(history, LIMITS, pytest.fail)
    assert not any(map(judge.has_deleted_unseen, range(HIGH_WATERMARK)))
    log = cast("Log", SimpleNamespace(log_start_offset=7, size_bytes=0))
    judge.looks_at(broker_id=3, process=1, log=log, now_ms=0)
    assert [offset for offset in range(HIGH_WATERMARK) if judge.has_deleted_unseen(offset)] == [4, 5, 6]
