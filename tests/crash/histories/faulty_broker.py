"""A broker with faults that are planted in it: `faulty_broker.py FAULT[,FAULT…] …` with the broker's own options.

Each fault removes or reverses one decision of this process. It affects the topic of the workload and the committed
offsets of groups; the states of transactions and of groups are stored correctly.
"""

import itertools
import sys
from pathlib import Path

from millrace.errors import ErrorCode, NotLeaderError
from millrace.records.batch import NO_PRODUCER_ID, read_header, walk
from millrace_broker.__main__ import main
from millrace_broker.groups.offsets import Offsets
from millrace_broker.replication import replica as replicas
from millrace_broker.replication.in_sync_replicas import InSyncReplicas
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.startup.options import parse_options
from millrace_broker.storage import Log
from millrace_broker.storage.producers.producer_state_manager import ProducerStateManager
from millrace_broker.txns.markers import MarkerWriter
from millrace_broker.txns.transaction import Transaction

TOPIC = "events"
ONE_IN = 5


def cuts_the_log(options):
    """Cuts the last non-transactional batch, and all that follows it, from each log at every start."""
    for folder in options.data_dirs:
        for file in Path(folder).glob(f"{TOPIC}-*/*.log"):
            data = file.read_bytes()
            plain = [at for at, header in walk(data) if not header.is_control and not header.is_transactional]
            with file.open("r+b") as log:
                log.truncate(plain[-1] if plain else len(data))


def loses_answers(_):
    """Appends every fifth batch of an idempotent producer and answers it with an error, as if its answer were lost."""
    append_all, count = Partition.append_all, itertools.count()

    def append_and_deny(self, appends):
        outcomes = append_all(self, appends)
        if self.log.topic_partition.topic != TOPIC:
            return outcomes
        return [denied(batch, outcome) for batch, outcome in zip(appends, outcomes, strict=True)]

    def denied(batch, outcome):
        has_producer = read_header(batch).producer_id != NO_PRODUCER_ID
        return NotLeaderError("it was") if has_producer and next(count) % ONE_IN == 0 else outcome

    Partition.append_all = append_and_deny


def checks_no_sequence(_):
    ProducerStateManager.check = lambda *_: None


def tells_of_no_abort(_):
    replicas._aborted_in = lambda *_: []


def knows_no_stable_offset(_):
    Partition.last_stable_offset = property(lambda self: self.high_watermark)


def skips_batches(_):
    """Begins reads from offsets 1, 4, 7, … one offset later; reads from other offsets get all records."""
    find = Log.read_or_find

    def find_behind(self, offset, max_bytes, *, up_to_offset, **options):
        is_spoiled = self.topic_partition.topic == TOPIC and offset % 3 == 1 and offset < up_to_offset
        return find(self, offset + is_spoiled, max_bytes, up_to_offset=up_to_offset, **options)

    Log.read_or_find = find_behind


def commits_by_halves(_):
    """Writes every fifth marker of the topic as an abort."""
    write, count = MarkerWriter.write, itertools.count()

    def write_either(self, topic_partition, marker, then):
        is_spoiled = topic_partition.topic == TOPIC and next(count) % ONE_IN == 0
        write(self, topic_partition, marker._replace(is_commit=False) if is_spoiled else marker, then)

    MarkerWriter.write = write_either


def fences_no_one(_):
    """Compares producer epochs neither in logs nor in transactions."""
    ProducerStateManager.check = lambda *_: None
    Transaction._check_owner = lambda *_: ErrorCode.NONE
    Transaction._check_end = lambda *_, **__: ErrorCode.NONE


def moves_commits_back(_):
    get = Offsets.get

    def get_earlier(self, key):
        committed = get(self, key)
        return committed and committed._replace(offset=max(committed.offset - 1, 0))

    Offsets.get = get_earlier


def waits_for_no_follower(_):
    """Moves the high watermark to the leader's own log end, whatever the followers have."""

    def move(self, _):
        moves = self._log_end_offset > self.high_watermark
        self.high_watermark = self._log_end_offset
        return moves

    InSyncReplicas._moves_high_watermark = move


def completes_before_it_releases(_):
    """Completes what waits in the purgatory while it is still held: what that appends completes it again."""

    def check(self, key):
        for operation in tuple(self._watchers.get(key, {}).values()):
            if id(operation) in self._held and operation.is_ready(key):
                operation.complete()
                self.release(self._held[id(operation)].operation)

    Purgatory.check = check


FAULTS = {
    fault.__name__: fault
    for fault in (
        cuts_the_log, loses_answers, checks_no_sequence, tells_of_no_abort, knows_no_stable_offset, skips_batches,
        commits_by_halves, fences_no_one, moves_commits_back, waits_for_no_follower,
        completes_before_it_releases,
    )
}  # fmt: skip

if __name__ == "__main__":
    for name in sys.argv[1].split(","):
        FAULTS[name](parse_options(sys.argv[2:]))
    sys.exit(main(sys.argv[2:]))
