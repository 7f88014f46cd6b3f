"""What becomes of a transaction by each answer of its coordinator, also by those that are hard to provoke."""

import contextlib
from collections import deque

import pytest

from millrace.client.answers import check
from millrace.client.groups import GroupMetadata, GroupOffset
from millrace.client.producer.accumulator import Accumulator
from millrace.client.producer.batch import Batch, Identity
from millrace.client.producer.link import encode_produce_head, encode_topics
from millrace.client.producer.settings import parse_settings
from millrace.client.producer.transaction_errors import (
    FatalTransactionError,
    ProducerFencedError,
    TransactionFailedError,
    TransactionStateError,
    TransactionTimeoutError,
)
from millrace.client.producer.transactions import State, Transactions, pause_s
from millrace.clock import SystemClock
from millrace.errors import AnswerLostError, BrokerUnreachableError, ErrorCode, MillraceError, UnsupportedVersionError
from millrace.records.batch import read_header
from millrace.records.compression import Codec
from millrace.wire.messages import PRODUCE

PROPERTIES = {"broker.list": "localhost:1", "transactional.id": "t"}
FIRST = Identity(7, 0, is_transactional=True)


class Coordinators:
    """Answers by a list of errors and error codes; where that is empty, all succeeds."""

    def __init__(self):
        self.answers, self.epoch, self.asked = deque(), -1, 0

    def metadata(self, topics):
        assert topics == []

    def once_on_coordinator(self, key, action, *, key_type):
        self.asked += 1
        answer = self.answers.popleft() if self.answers else ErrorCode.NONE
        if isinstance(answer, MillraceError):
            raise answer
        check(answer, "of the coordinator")
        if "init_producer" not in action.__qualname__:
            return None
        self.epoch += 1
        return Identity(7, self.epoch, is_transactional=True)


@pytest.fixture
def coordinators():
    return Coordinators()


@pytest.fixture
def transactions(coordinators):
    return opened(coordinators)


def opened(coordinators, **properties):
    settings, _ = parse_settings(PROPERTIES, properties)
    accumulator = Accumulator(settings, lambda: None, lambda _: None, SystemClock())
    made = Transactions(settings, coordinators, accumulator, SystemClock())
    made.init()
    made.begin()
    made.add([("t", 0)])
    assert (made.state, made.identity) == (State.OPEN, FIRST)
    return made


def send_offsets(transactions):
    transactions.send_offsets({("t", 0): GroupOffset(1, "")}, GroupMetadata("g"))


def add_ahead(transactions):
    transactions.add_ahead([("t", 1), ("u", 0)])


CALLS = {"add": add_ahead, "offsets": send_offsets, "commit": Transactions.commit, "abort": Transactions.abort}
ADDING = ("add", "offsets")
PASSING = [
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS, BrokerUnreachableError("gone"), AnswerLostError("lost"),
]  # fmt: skip
FENCED = [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]
FATAL = [
    ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TXN_STATE, UnsupportedVersionError("too old"),
]  # fmt: skip
REFUSED = [
    ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TOPIC_AUTHORIZATION_FAILED,
]  # fmt: skip


@pytest.mark.parametrize("answer", PASSING, ids=str)
@pytest.mark.parametrize("call", CALLS)
def test_what_may_pass_is_asked_again(transactions, coordinators, call, answer):
    coordinators.answers += [answer, answer]
    CALLS[call](transactions)
    assert transactions.state is (State.OPEN if call in ADDING else State.READY)


@pytest.mark.parametrize("answer", PASSING, ids=str)
@pytest.mark.parametrize(("call", "after"), [("commit", State.COMMITTING), ("abort", State.ABORTING)])
def test_an_end_that_is_not_answered_in_time_is_all_that_may_be_done(coordinators, call, after, answer):
    transactions = opened(coordinators, max_block_ms=30)
    coordinators.answers += [answer] * 1000
    with pytest.raises(TransactionTimeoutError):
        CALLS[call](transactions)
    assert transactions.state is after
    for other in CALLS.keys() - {call}:
        with pytest.raises(TransactionStateError):
            CALLS[other](transactions)
    coordinators.answers.clear()
    CALLS[call](transactions)
    assert transactions.state is State.READY


@pytest.mark.parametrize(
    ("call", "answer"),
    [*((call, answer) for call in (*ADDING, "commit") for answer in FATAL), *(("commit", one) for one in FENCED)],
    ids=str,
)
def test_what_is_fatal_ends_the_producer(transactions, coordinators, call, answer):
    coordinators.answers.append(answer)
    with pytest.raises(ProducerFencedError if answer in FENCED else FatalTransactionError, match="close this producer"):
        CALLS[call](transactions)
    assert transactions.state is State.FATAL
    for again in (*CALLS.values(), Transactions.begin):
        with pytest.raises(FatalTransactionError):
            again(transactions)


@pytest.mark.parametrize("answer", [*REFUSED, *FENCED], ids=str)
@pytest.mark.parametrize("call", ADDING)
def test_what_is_refused_fails_the_transaction_alone(transactions, coordinators, call, answer):
    coordinators.answers += [answer] if call == "add" else [ErrorCode.NONE, answer]
    with pytest.raises(TransactionFailedError):
        CALLS[call](transactions)
    with pytest.raises(TransactionFailedError):
        transactions.commit()
    transactions.abort()
    transactions.begin()
    assert (transactions.state, transactions.identity) == (State.OPEN, FIRST)


@pytest.mark.parametrize(
    ("answer", "state"),
    [(ErrorCode.TRANSACTION_ABORTABLE, State.FAILED), (ErrorCode.UNKNOWN_SERVER_ERROR, State.FATAL)],
)
def test_a_commit_of_which_nobody_knows_what_became_is_never_aborted(transactions, coordinators, answer, state):
    coordinators.answers.append(answer)
    with pytest.raises(TransactionFailedError if state is State.FAILED else FatalTransactionError):
        transactions.commit()
    assert transactions.state is state


@pytest.mark.parametrize("code", FENCED)
@pytest.mark.parametrize("has_other_owner", [True, False])
def test_an_abort_that_is_fenced_asks_for_the_next_epoch(transactions, coordinators, code, has_other_owner):
    coordinators.answers += [code, ErrorCode.PRODUCER_FENCED] if has_other_owner else [code]
    with pytest.raises(ProducerFencedError) if has_other_owner else contextlib.nullcontext():
        transactions.abort()
    assert transactions.state is (State.FATAL if has_other_owner else State.READY)
    assert transactions.identity.epoch == (0 if has_other_owner else 1)


@pytest.mark.parametrize("call", CALLS)
def test_after_a_lost_answer_the_next_transaction_has_the_next_epoch(transactions, coordinators, call):
    coordinators.answers.append(AnswerLostError("lost"))
    CALLS[call](transactions)
    if call in ADDING:
        transactions.commit()
    transactions.begin()
    assert transactions.identity.epoch == 1


def test_after_a_lost_answer_to_the_first_partition_the_abort_is_asked_for(transactions, coordinators):
    """Whether the coordinator has begun the transaction is not known: that there is none to abort is right, too."""
    transactions.commit()
    transactions.begin()
    coordinators.answers += [AnswerLostError("lost"), ErrorCode.INVALID_TXN_STATE]
    with pytest.raises(AnswerLostError):
        transactions.add([("t", 0)])
    transactions.abort()
    assert (transactions.state, len(coordinators.answers)) == (State.READY, 0)


@pytest.mark.parametrize("answer", [*REFUSED, *FENCED, *FATAL], ids=str)
def test_a_partition_that_is_refused_ends_the_transaction_or_the_producer(transactions, coordinators, answer):
    coordinators.answers.append(answer)
    with pytest.raises(MillraceError):
        transactions.add([("t", 1)])
    assert transactions.state is (State.FATAL if answer in FATAL else State.FAILED)
    assert transactions.missing([("t", 0), ("t", 1)]) == [("t", 1)]


def test_partitions_that_are_added_ahead_take_one_request_in_each_transaction(transactions, coordinators):
    for _ in range(2):
        coordinators.asked = 0
        for _ in range(2):
            transactions.add_ahead([("t", 0), ("t", 1), ("u", 0)])
        transactions.add(transactions.missing([("t", 1), ("u", 0)]))
        assert coordinators.asked == 1
        transactions.commit()
        transactions.begin()


def test_a_batch_that_was_sent_and_is_given_up_needs_the_next_epoch(transactions):
    for sequence, epoch in ((-1, 0), (4, 1)):
        batch = Batch("t", 0, base_timestamp_ms=0, ready_s=0, deadline_s=0, clock=SystemClock(), sequence=sequence)
        transactions.given_up(batch, MillraceError("given up"))
        assert transactions.state is State.FAILED
        transactions.abort()
        transactions.begin()
        assert transactions.identity.epoch == epoch


def test_attempts_to_add_a_partition_have_pauses_that_grow_up_to_a_limit(transactions, coordinators):
    pauses = [transactions.pause_s() for _ in range(20)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == pauses[-2]
    transactions.add([("t", 1)])
    assert transactions.pause_s() == pauses[0]


def test_requests_and_batches_say_that_they_are_of_a_transaction():
    batch = Batch("t", 3, base_timestamp_ms=0, ready_s=0, deadline_s=0, clock=SystemClock())
    batch.records, batch.identity, batch.sequence = [(0, 0, None, b"v", ())], FIRST, 0
    placed = [("t", 3, batch.encode(Codec.NONE))]
    message = PRODUCE.decode_request(8, encode_produce_head(-1, 5, placed, "ид") + b"".join(encode_topics(placed)))
    assert message.transactional_id == "ид"
    header = read_header(bytes(message.topic_data[0].partition_data[0].records))
    assert (header.is_transactional, header.producer_id) == (True, 7)
    batch.identity = Identity(7, 0)
    assert not read_header(batch.encode(Codec.NONE)).is_transactional


def test_a_batch_that_could_not_be_verified_waits_a_little_first():
    pauses_ms = [round(1000 * pause_s(attempts, 0.1)) for attempts in (1, 2, 3, 4, 5, 6, 100_000)]
    assert pauses_ms == [5, 10, 20, 40, 80, 100, 100]
    assert pause_s(1, 0.001) == 0.001
