"""What must hold for transactions, whatever fails; each violation is an anomaly in plain words.

- A transaction has one outcome, the same in all of its partitions and for the group whose offset it commits.
- A commit that was answered with success stands, with each acknowledged record once and in order. So does an abort; and
  what nobody has asked to commit is aborted.
- An instance that another one has fenced commits nothing any more.
- A batch that is sent again is there once, in a transaction that is aborted, too.
- In the end no transaction is open.

It knows what clients have asked and were told, and the histories of partitions, in which markers decide. What lies in
a partition of which nothing is promised any more (`promises`) is not looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from millrace.errors import ErrorCode
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.workloads.history import History


def value_of(number: int, record: int) -> bytes:
    """Returns the value of a record, which is not in another one, nor in another transaction."""
    return b"transaction %d record %d" % (number, record)


def _number_of(value: bytes | None) -> int | None:
    words = (value or b"").split()
    return int(words[1]) if len(words) == 4 and words[0] == b"transaction" else None


class Attempt:
    """A transaction as its client knows it. `has_offset` says that it was told that its offset is committed with it."""

    def __init__(self, transactional_id: str, number: int, is_superseded: Callable[[], bool]) -> None:
        self.transactional_id = transactional_id
        self.number = number
        self.has_offset = False
        self.sent: dict[TopicPartition, list[bytes]] = defaultdict(list)
        self.acknowledged: dict[TopicPartition, list[bytes]] = defaultdict(list)
        self.wants_commit = self.is_answered = self.was_superseded = False
        self._is_superseded = is_superseded

    @property
    def has_begun(self) -> bool:
        """Whether it has sent anything that belongs to it."""
        return bool(self.sent) or self.has_offset

    @property
    def is_committed(self) -> bool:
        """Whether its client was told so."""
        return self.wants_commit and self.is_answered

    def sends(self, key: TopicPartition, values: Iterable[bytes]) -> None:
        """Notes the records of a batch."""
        self.sent[key] += values

    def acknowledges(self, key: TopicPartition, values: Iterable[bytes]) -> None:
        """Notes that a batch was acknowledged."""
        self.acknowledged[key] += values

    def asks_to_end(self, *, is_commit: bool) -> None:
        """Notes that its client asks to commit or abort it."""
        self.wants_commit = is_commit
        self.was_superseded = self._is_superseded()

    def is_told(self, error: ErrorCode) -> None:
        """Notes the answer to that."""
        self.is_answered = error is ErrorCode.NONE


class TransactionJudge:
    """Hears of all transactions, and looks at the histories of partitions at the end.

    `last_offsets` are those that groups are told when no transaction goes on.
    """

    def __init__(self, anomaly: Callable[[str], None], is_void: Callable[[TopicPartition], bool]) -> None:
        self.last_offsets: dict[str, int] = {}
        self.anomaly = anomaly
        self._is_void = is_void
        self._begun: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._attempts: dict[int, Attempt] = {}

    def begins(self, transactional_id: str, producer_id: int, epoch: int) -> int:
        """Notes that another instance has its producer id and epoch, and returns its number."""
        self._begun[transactional_id].append((producer_id, epoch))
        return len(self._begun[transactional_id])

    def attempt(self, transactional_id: str, instance: int, number: int) -> Attempt:
        """Returns a new transaction of an instance."""

        def is_superseded() -> bool:
            begun = self._begun[transactional_id]
            producer_id, epoch = begun[instance - 1]
            # An answer may come late, with an epoch that is fenced already.
            return any(other != producer_id or newer > epoch for other, newer in begun[instance:])

        self._attempts[number] = made = Attempt(transactional_id, number, is_superseded)
        return made

    def told_offset(self, transactional_id: str, offset: int) -> None:
        """Notes the group's offset as an instance is told it at its begin: transactions before it have ended."""
        least = max((one.number for one in self._with_offset(transactional_id) if one.is_committed), default=-1)
        if offset < least:
            self.anomaly(f"{transactional_id}: the group is told at offset {offset} after {least}")

    def _with_offset(self, transactional_id: str) -> Iterator[Attempt]:
        return (one for one in self._attempts.values() if one.transactional_id == transactional_id and one.has_offset)

    # The end.

    def end(self, histories: Iterable[History]) -> None:
        """Compares all transactions with what is in the partitions."""
        found: dict[int, dict[TopicPartition, list[bytes]]] = defaultdict(lambda: defaultdict(list))
        outcomes: dict[int, set[bool | None]] = defaultdict(set)
        for history in histories:
            if self._is_void(history.key):
                continue
            for offset, record in history.records.items():
                number = _number_of(record.value)
                if number is not None:
                    found[number][history.key].append(record.value or b"")
                    outcomes[number].add(history.outcomes.get(offset))
        for number, attempt in self._attempts.items():
            self._check_outcome(attempt, outcomes[number])
            self._check_records(attempt, found[number])
        for transactional_id, offset in self.last_offsets.items():
            self._check_offset(transactional_id, offset, outcomes)

    def _check_outcome(self, attempt: Attempt, outcomes: set[bool | None]) -> None:
        what = f"transaction {attempt.number} of {attempt.transactional_id}"
        if None in outcomes:
            self.anomaly(f"{what} is open for ever")
        if len(outcomes) > 1:
            self.anomaly(f"{what} is committed in one partition and not in another")
        if attempt.is_committed and outcomes == {False}:
            self.anomaly(f"{what} was committed, and is aborted")
        if not attempt.wants_commit and True in outcomes:
            self.anomaly(f"{what} is committed, which nobody has asked for")
        if attempt.is_committed and attempt.was_superseded:
            self.anomaly(f"{what} was committed after its producer had been fenced")

    def _check_records(self, attempt: Attempt, found: Mapping[TopicPartition, list[bytes]]) -> None:
        what = f"transaction {attempt.number} of {attempt.transactional_id}"
        for key, values in attempt.sent.items():
            if self._is_void(key):
                continue
            there, acknowledged = found[key], set(attempt.acknowledged[key])
            if there != [one for one in values if one in set(there)]:
                self.anomaly(f"{what}: the records in {key} are repeated or in another order")
            if not acknowledged.issubset(there):
                self.anomaly(f"{what}: acknowledged records in {key} are lost")

    def _check_offset(self, transactional_id: str, offset: int, outcomes: Mapping[int, set[bool | None]]) -> None:
        found = list(self._with_offset(transactional_id))
        newest = max((one.number for one in found if True in outcomes[one.number]), default=-1)
        unknown = {one.number for one in found if not outcomes[one.number] and any(map(self._is_void, one.sent))}
        if offset != newest and not (offset > newest and offset in unknown):
            self.anomaly(f"{transactional_id}: the group is at offset {offset}, and {newest} was committed")
