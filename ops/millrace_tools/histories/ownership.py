"""Owners of a group's partitions: one at a time, under tokens that grow, and no committed offset goes back.

A claim is in force once it has been acknowledged. A process with a smaller token that hands out or commits afterwards
shared the partition with its new owner. Operations that overlap in time may be in either order, and prove nothing. A
commit without a token is judged by its offset alone. docs/consumer-groups.md says who may commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from millrace_tools.histories.events import Action, Operation, Outcome, Owning
from millrace_tools.histories.finding import Anomaly, FoundAnomaly

_Done = tuple[Operation, Owning]
REPLACED = {Action.HAND_OUT: Anomaly.OWNERSHIP_OVERLAP, Action.COMMIT: Anomaly.FENCED_COMMIT}


def ownership_findings(operations: Sequence[Operation]) -> Iterator[FoundAnomaly]:
    """Yields the anomalies of owners, their hand-outs and their commits."""
    by_partition: dict[tuple[str, str], list[_Done]] = defaultdict(list)
    for operation in operations:
        if operation.outcome is Outcome.OK:
            for owning in operation.ownings():
                by_partition[operation.group, owning.partition].append((operation, owning))
    for (_, partition), done in by_partition.items():
        yield from _Partition(partition).findings(done)


class _Partition:
    """A sweep through a group's acknowledged operations on one partition, in the order in which they become certain."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.owner: _Done | None = None  # the largest token that is in force
        self.claimed_ns: dict[int, int] = {}  # by token, the beginning of its first claim
        self.released: set[int] = set()
        self.committed: _Done | None = None

    def findings(self, done: list[_Done]) -> Iterator[FoundAnomaly]:
        """Judges each beginning by what had ended before it; an end counts after the beginnings of the same time."""
        begins = [(one[0].invoked_ns, 0, index, one) for index, one in enumerate(done)]
        ends = [(one[0].completed_ns or 0, 1, index, one) for index, one in enumerate(done)]
        for operation, owning in reversed(done):
            if owning.action is Action.CLAIM:
                self.claimed_ns[_token(owning)] = operation.invoked_ns
        for _, is_end, _, one in sorted(begins + ends):
            if is_end:
                self._take(one)
            else:
                yield from self._judge(one)

    def _take(self, one: _Done) -> None:
        owning = one[1]
        match owning.action:
            case Action.CLAIM if self.owner is None or _token(owning) > _token(self.owner[1]):
                self.owner = one
            case Action.RELEASE:
                self.released.add(_token(owning))
            case Action.COMMIT if self.committed is None or _offset(owning) > _offset(self.committed[1]):
                self.committed = one

    def _judge(self, one: _Done) -> Iterator[FoundAnomaly]:
        operation, owning = one
        if owning.action is Action.RELEASE:
            return
        if self.owner is not None and _is_replaced(owning, _token(self.owner[1])):
            kind = REPLACED.get(owning.action, Anomaly.CLAIM_REGRESSION)
            yield self._finding(kind, f"{operation} has token {owning.token} after {self._said(self.owner)}")
        elif owning.action is Action.HAND_OUT and not self._is_owned(operation, _token(owning)):
            message = f"{operation} handed out offset {owning.offset} under token {owning.token}, which is not owned"
            yield self._finding(Anomaly.UNOWNED_HAND_OUT, message)
        if self.committed is None or _offset(owning) >= _offset(self.committed[1]):
            return
        said = self._said(self.committed)
        if owning.action is Action.COMMIT:
            message = f"{operation} committed offset {owning.offset} after {said}"
            yield self._finding(Anomaly.COMMIT_REGRESSION, message)
        elif owning.action is Action.COMMITTED:
            message = f"{operation} was told that offset {owning.offset} is committed after {said}"
            yield self._finding(Anomaly.LOST_COMMIT, message)

    def _is_owned(self, operation: Operation, token: int) -> bool:
        """Returns whether a claim of the token had begun before the operation ended, and no release ended before it."""
        claimed_ns, ended_ns = self.claimed_ns.get(token), operation.completed_ns
        return claimed_ns is not None and (ended_ns is None or claimed_ns <= ended_ns) and token not in self.released

    def _finding(self, kind: Anomaly, message: str) -> FoundAnomaly:
        return FoundAnomaly(kind, self.name, message)

    def _said(self, one: _Done) -> str:
        operation, owning = one
        return f"{operation} had " + (
            f"token {owning.token}" if owning.offset is None else f"committed offset {owning.offset}"
        )


def _is_replaced(owning: Owning, token: int) -> bool:
    """Returns whether an operation's token is smaller than an owner's; a new claim needs a larger one."""
    if owning.token is None:
        return False
    return owning.token < token or (owning.action is Action.CLAIM and owning.token == token)


def _token(owning: Owning) -> int:
    return -1 if owning.token is None else owning.token


def _offset(owning: Owning) -> int:
    return -1 if owning.offset is None else owning.offset
