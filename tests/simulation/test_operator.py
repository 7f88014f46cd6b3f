"""The operator gives up what is damaged only where no replica has it, and retention has rightly deleted it."""

import pytest

from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import DamagedRange, TopicPartition
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.simulation.simulated_operator import is_gone
from millrace_support.simulation.workloads.drawn import LIMITS
from millrace_support.simulation.workloads.history import History
from millrace_support.simulation.workloads.retention_judge import RetentionJudge

KEY = TopicPartition("limited", 0)
DAMAGE = DamagedRange(11, 14, 0, 85, "")
SOUND = encode_batch([NewRecord(b"value")] * 3, base_offset=DAMAGE.start_offset)
ROTTEN = SOUND[:-1] + bytes([SOUND[-1] ^ 1])
BEHIND = encode_batch([NewRecord(b"value")], base_offset=DAMAGE.end_offset)


def disk_with(batches: bytes) -> CrashFileSystem:
    fs = CrashFileSystem()
    fs.mkdir(f"/data/{KEY}")
    fs.pwritev(fs.open(f"/data/{KEY}/{7:020d}.log", create=True), [batches], 0)
    return fs


@pytest.mark.parametrize(
    ("others", "justified", "is_lost"),
    [
        pytest.param([BEHIND], 14, True, id="retention has deleted the last copy"),
        pytest.param([BEHIND], 13, False, id="one record was not to be deleted"),
        pytest.param([SOUND + BEHIND], 14, False, id="there is a copy"),
        pytest.param([BEHIND, SOUND], 14, False, id="there is a copy on one of two disks"),
        pytest.param([ROTTEN + BEHIND], 14, True, id="the other copy is damaged, too"),
    ],
)
def test_the_operator_gives_up_only_what_is_gone(others: list[bytes], justified: int, is_lost: bool) -> None:
    anomalies: list[str] = []
    retention = RetentionJudge(History(KEY, anomalies.append, written=None), LIMITS, anomalies.append)
    retention.justified = justified
    assert is_gone([DAMAGE], retention, [disk_with(one) for one in others]) is is_lost
