"""The transactions of a producer with a transactional id, one after the other, as its coordinator knows them (KIP-98).

    UNINITIALIZED ──init──► READY ◄─────────────────────────────┬──────────────────┐
                              └─begin─► OPEN ──commit──► COMMITTING                │
                                         │ └───abort──────────────────────────► ABORTING
                                         └─a record or offset fails─► FAILED ──abort──┘
    from any of them, once another producer has the transactional id, or the brokers refuse it: FATAL

Records are taken while a transaction is OPEN alone. The sender's thread adds a partition to the transaction before the
first batch for it leaves, unless the application has, and gives up what is still unsent once the transaction has failed
or is aborted.

A record must neither be doubled nor skipped by what is late or lost:

- Where a batch that was sent is given up, or the answer of a coordinator is lost, something of this transaction may
  still be on its way. The next one begins under the next epoch (KIP-360), so that brokers refuse all of that.
- A commit that is not answered may be repeated, and nothing else may be done: nobody knows yet whether it counts.
- A broker that knows of a later epoch fails the transaction. Its abort asks the coordinator for the next epoch, which
  is refused if another producer has taken over. Where the transaction was only open for too long, Millrace and Apache
  Kafka 4.1 grant it (KIP-588). A commit that is refused so ends the producer: an earlier attempt at it may count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from time import sleep
from typing import TypeVar

from millrace.client.cluster import GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE, Cluster
from millrace.client.connection import Connection
from millrace.client.groups import GroupMetadata, GroupOffset
from millrace.client.metadata import Partition
from millrace.client.producer import transaction_requests as requests
from millrace.client.producer.accumulator import Accumulator
from millrace.client.producer.batch import NOBODY, Batch, Identity
from millrace.client.producer.settings import ProducerSettings
from millrace.client.producer.transaction_errors import (
    TransactionAbortedError,
    TransactionError,
    TransactionStateError,
    TransactionTimeoutError,
    failed_error,
    fatal_error,
    is_fatal,
    is_fenced,
    may_pass,
)
from millrace.clock import Clock
from millrace.errors import (
    AnswerLostError,
    BrokerError,
    BrokerUnreachableError,
    ErrorCode,
    MillraceError,
    UnsupportedVersionError,
)
from millrace.records.batch import NO_SEQUENCE

Result = TypeVar("Result")
FIRST_PAUSE_S = 0.005  # a coordinator that still writes markers is mostly done by then
LAST_PAUSE_S = 0.1


def pause_s(attempts: int, longest_s: float) -> float:
    """Returns how long a batch of a transaction waits after so many attempts: twice as long each time.

    It begins with a short time, as a broker of Apache Kafka refuses one of two requests of a transaction that it has to
    verify at the coordinator at the same time (KIP-890).
    """
    return min(FIRST_PAUSE_S * (1 << min(attempts - 1, 10)), longest_s)


class State(Enum):
    """What became of the transaction; the value says why a call is out of its turn."""

    UNINITIALIZED = "init_transactions has not been called"
    READY = "no transaction is open: begin_transaction opens one"
    OPEN = "a transaction is open"
    COMMITTING = "the commit is not answered yet: call commit_transaction again"
    ABORTING = "the abort is not answered yet: call abort_transaction again"
    FAILED = "the transaction has failed: abort_transaction ends it"
    FATAL = "the producer can't go on"


CALLS = {
    "init_transactions": (State.UNINITIALIZED,),
    "begin_transaction": (State.READY,),
    "add_to_transaction": (State.OPEN,),
    "send_offsets_to_transaction": (State.OPEN,),
    "commit_transaction": (State.OPEN, State.COMMITTING),
    "abort_transaction": (State.OPEN, State.FAILED, State.ABORTING),
}
DROPS_RECORDS = (State.FAILED, State.ABORTING, State.FATAL)


class Transactions:
    """Makes the calls of one producer, one at a time; its sender's thread uses the methods under "Of the sender".

    `cluster` is for this alone, and is closed by `close`.
    """

    def __init__(self, settings: ProducerSettings, cluster: Cluster, accumulator: Accumulator, clock: Clock) -> None:
        self._id = settings.transactional_id
        self._timeout_ms = settings.transaction_timeout_ms
        self._block_s = settings.max_block_ms / 1000
        self._accumulator = accumulator
        self._now_s = clock.monotonic_s
        self._cluster = cluster
        self._asking = threading.Lock()  # guards the cluster
        self._knows_brokers = False  # all of them, and not only the given ones, may know the coordinator
        self._calls = threading.Lock()
        self._lock = threading.Lock()  # guards state and error
        self.state = State.UNINITIALIZED
        self._error: TransactionError | None = None
        self.identity = NOBODY
        self._needs_epoch = False
        self._partitions: set[Partition] = set()
        self._groups: set[str] = set()
        self._may_be_begun = False  # the coordinator was asked to begin it
        self._pause_s = FIRST_PAUSE_S
        self._become(State.UNINITIALIZED)

    # Of the application's threads.

    def init(self) -> None:
        """Takes the transactional id over: fences its former producers, and ends what they left open."""
        with self._calls:
            self._check("init_transactions")
            self._initialize(NOBODY)
            self._become(State.READY)

    def begin(self) -> None:
        """Opens a transaction, under the next epoch where something of the last one may still be on its way."""
        with self._calls:
            self._check("begin_transaction")
            if self._needs_epoch:
                self._initialize(self.identity)
            self._become(State.OPEN)

    def add_ahead(self, partitions: Iterable[Partition]) -> None:
        """Adds partitions to the transaction by one request; raises TransactionFailedError where that is not possible.

        The sender's thread may add the same one meanwhile: the coordinator takes it any number of times.
        """
        with self._calls:
            self._check("add_to_transaction")
            missing = self.missing(list(partitions))
            if not missing:
                return
            self._may_be_begun = True
            action = requests.add_partitions(self._id, self.identity, missing)
            try:
                self._ask(self._id, TRANSACTION_KEY_TYPE, action, self._now_s() + self._block_s)
            except MillraceError as error:
                raise self._fail(error, from_coordinator=True) from error
            self._partitions.update(missing)

    def send_offsets(self, offsets: Mapping[Partition, GroupOffset], group: GroupMetadata) -> None:
        """Makes a group's offsets part of the transaction; raises TransactionFailedError where that is not possible."""
        with self._calls:
            self._check("send_offsets_to_transaction")
            if not offsets:
                return
            deadline_s = self._now_s() + self._block_s
            try:
                if group.group_id not in self._groups:
                    self._may_be_begun = True
                    add = requests.add_group(self._id, self.identity, group.group_id)
                    self._ask(self._id, TRANSACTION_KEY_TYPE, add, deadline_s)
                    self._groups.add(group.group_id)
                commit = requests.commit_offsets(self._id, self.identity, group, offsets)
                self._ask(group.group_id, GROUP_KEY_TYPE, commit, deadline_s)
            except MillraceError as error:
                raise self._fail(error, from_coordinator=True) from error

    def commit(self) -> None:
        """Sends all records, waits until the brokers have them, and commits; it may be repeated after a timeout."""
        with self._calls:
            self._check("commit_transaction")
            if self.state is State.OPEN:
                self._accumulator.refuse(TransactionStateError(f"transactional id {self._id}: the commit is under way"))
                self._accumulator.flush(None)
                self._become(State.COMMITTING, only_from=State.OPEN)
                self._check("commit_transaction")
            self._end(commit=True, deadline_s=self._now_s() + self._block_s)

    def abort(self) -> None:
        """Drops what is unsent, waits for the answers that are due, and aborts; it may be repeated after a timeout."""
        with self._calls:
            self._check("abort_transaction")
            self._abort(None)

    def close(self, timeout_s: float) -> None:
        """Aborts what is open, within about `timeout_s`; raises TransactionError or another MillraceError."""
        if not self._calls.acquire(timeout=max(timeout_s, 0)):
            return  # another thread is in a call, and closing makes that end
        try:
            if self.state in CALLS["abort_transaction"]:
                self._abort(timeout_s)
        finally:
            self._calls.release()

    @property
    def may_be_aborted(self) -> bool:
        """Whether `abort` may be called now."""
        return self.state in CALLS["abort_transaction"]

    # Of the sender.

    @property
    def dropping(self) -> TransactionAbortedError | None:
        """The error of records that are not to be sent any more, None while they are."""
        if self.state not in DROPS_RECORDS:
            return None
        dropping = TransactionAbortedError(f"not sent: {self._error or 'its transaction is aborted'}")
        dropping.__cause__ = None if self._error is None else self._error.__cause__
        return dropping

    def missing(self, partitions: list[Partition]) -> list[Partition]:
        """Returns those partitions that are not in the transaction yet."""
        return [one for one in partitions if one not in self._partitions]

    def add(self, partitions: list[Partition]) -> None:
        """Adds partitions to the transaction, in a single attempt; the transaction fails where no other one would help.

        Raises the error of the attempt; after `pause_s` another may be made.
        """
        if not partitions:
            return
        self._may_be_begun = True
        try:
            self._once(self._id, TRANSACTION_KEY_TYPE, requests.add_partitions(self._id, self.identity, partitions))
        except MillraceError as error:
            if not may_pass(error):
                self._fail(error, from_coordinator=True)
            raise
        self._partitions.update(partitions)
        self._pause_s = FIRST_PAUSE_S

    def pause_s(self) -> float:
        """Returns how long to wait before the next attempt: twice as long as before the last, up to a tenth second."""
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, LAST_PAUSE_S)
        return pause_s

    def given_up(self, batch: Batch, error: MillraceError) -> None:
        """Fails the transaction of a batch that is given up; one that was sent needs the next epoch, too."""
        if batch.sequence != NO_SEQUENCE:
            self._needs_epoch = True
        self._fail(error, from_coordinator=False)

    # Of the owner.

    def use_cluster(self, cluster: Cluster) -> None:
        """Finds coordinators by another cluster from now on, and closes the former one."""
        with self._asking:
            self._cluster.close()
            self._cluster, self._knows_brokers = cluster, False

    def disconnect(self) -> None:
        """Closes the connections to coordinators."""
        with self._asking:
            self._cluster.close()

    def abandon(self) -> None:
        """Makes new locks in a forked child, and closes the child's copies of the parent's connections."""
        self._asking, self._calls, self._lock = threading.Lock(), threading.Lock(), threading.Lock()
        self._cluster.close()

    def _check(self, call: str) -> None:
        """Raises the error for a call that is out of its turn."""
        if threading.current_thread() is self._accumulator.deliverer:
            raise TransactionStateError(f"{call}: not in a callback, for which the producer's own thread waits")
        if self.state in CALLS[call]:
            return
        raise self._error or TransactionStateError(f"{call}: {self.state.value}")

    def _become(self, state: State, error: TransactionError | None = None, only_from: State | None = None) -> None:
        """Goes to a state, and lets records in, or keeps them out, as it says; stays where it is in another state."""
        with self._lock:
            if only_from not in (None, self.state):
                return
            self.state, self._error = state, error
            if state is State.OPEN:
                self._accumulator.admit()
            else:
                self._accumulator.refuse(error or TransactionStateError(f"transactional id {self._id}: {state.value}"))

    def _fail(self, error: MillraceError, *, from_coordinator: bool) -> TransactionError:
        """Ends what can't go on after this error: the producer, or the transaction that is open; returns why."""
        if is_fatal(error, from_coordinator=from_coordinator):
            fatal = fatal_error(self._id, error)
            self._become(State.FATAL, fatal)
            return fatal
        failed = failed_error(self._id, error)
        self._become(State.FAILED, failed, only_from=State.OPEN)
        return failed

    def _abort(self, timeout_s: float | None) -> None:
        limit_s = self._block_s if timeout_s is None else timeout_s
        self._become(State.ABORTING)
        self._accumulator.flush(timeout_s)
        if self.state is State.ABORTING:
            self._end(commit=False, deadline_s=self._now_s() + limit_s)
        elif self._error is not None:
            raise self._error

    def _end(self, *, commit: bool, deadline_s: float) -> None:
        """Asks the coordinator to end the transaction, if it may know of it."""
        if self._may_be_begun:
            action = requests.end(self._id, self.identity, commit=commit)
            try:
                self._ask(self._id, TRANSACTION_KEY_TYPE, action, deadline_s)
            except (BrokerError, UnsupportedVersionError) as error:
                code = error.broker_code if isinstance(error, BrokerError) else error.code
                self._not_ended(error, code, commit=commit)
        self._partitions.clear()
        self._groups.clear()
        self._may_be_begun = False
        self._become(State.READY)

    def _not_ended(self, error: MillraceError, code: int, *, commit: bool) -> None:
        """Goes on after an end that the coordinator refused, or raises why that is not possible."""
        if not commit:
            if code == ErrorCode.INVALID_TXN_STATE and not (self._partitions or self._groups):
                return  # no request that adds to it has come through
            if is_fenced(error):
                self._initialize(self.identity)
                return
        elif code == ErrorCode.TRANSACTION_ABORTABLE:
            self._become(State.FAILED, failed := failed_error(self._id, error))
            raise failed from error
        self._become(State.FATAL, fatal := fatal_error(self._id, error))
        raise fatal from error

    def _initialize(self, expected: Identity) -> None:
        """Gets the next epoch; raises ProducerFencedError where `expected` is not the id's owner any more."""
        action = requests.init_producer(self._id, self._timeout_ms, expected)
        deadline_s = self._now_s() + self._block_s
        try:
            self.identity = self._ask(self._id, TRANSACTION_KEY_TYPE, action, deadline_s)
        except MillraceError as error:
            if not (is_fenced(error) or is_fatal(error, from_coordinator=True)):
                raise
            self._become(State.FATAL, fatal := fatal_error(self._id, error))
            raise fatal from error
        self._needs_epoch = False

    def _ask(self, key: str, key_type: int, action: Callable[[Connection], Result], deadline_s: float) -> Result:
        """Returns what `action` returns on a coordinator's connection; repeats it while that may help, until then."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return self._once(key, key_type, action)
            except MillraceError as error:
                if not may_pass(error):
                    raise
                if self._now_s() + pause_s > deadline_s:
                    raise TransactionTimeoutError(f"transactional id {self._id}: not done in time: {error}") from error
            sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    def _once(self, key: str, key_type: int, action: Callable[[Connection], Result]) -> Result:
        try:
            with self._asking:
                if not self._knows_brokers:
                    self._cluster.metadata([])
                    self._knows_brokers = True
                return self._cluster.once_on_coordinator(key, action, key_type=key_type)
        except BrokerUnreachableError as error:
            self._knows_brokers = False
            if isinstance(error, AnswerLostError):
                self._needs_epoch = True
            raise
