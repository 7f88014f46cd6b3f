"""WriteTxnMarkers and AddPartitionsToTxn to another broker: what is sent, and what its answers say."""

import asyncio

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace_broker.replication.broker_link import BrokerLink
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.admission import Question, ask_about_partitions
from millrace_broker.txns.markers import Marker, MarkerToSend, write_markers
from millrace_broker.txns.state import Producer
from millrace_support.scripted_broker import ScriptedBroker, answer_frame, answer_versions

UNKNOWN_CODE = 94  # INCONSISTENT_VOTER_SET, which Millrace has no use for
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def exchange(send, items, answers, served=(0, 5)):
    """What `send` makes of a broker's answers, and the requests that the broker got."""
    asked, told = [], iter(answers)

    async def answer(header, message):
        if versions := answer_versions(header, {ApiKey.ADD_PARTITIONS_TO_TXN: served}):
            return versions
        asked.append(decode(header.api_key, header.api_version, Direction.REQUEST, message))
        fields = next(told)
        return answer_frame(header, encode(header.api_key, header.api_version, Direction.RESPONSE, fields))

    async def whole():
        async with ScriptedBroker(answer) as broker:
            link = await BrokerLink.connect(broker.address, client_id="t", timeout_s=60.0, max_response_bytes=1 << 20)
            try:
                outcomes = await send(link, items)
                return outcomes, [(one.api_key, one.api_version) for one in broker.requests[-len(asked) :]]
            finally:
                link.close()

    outcomes, versions = asyncio.run(asyncio.wait_for(whole(), 60))
    return outcomes, asked, versions


def marked(producer_id, **errors):
    """The answer about one producer's markers: errors by topic, in the order of the partitions."""
    topics = [
        {
            "name": name,
            "partitions": [{"partition_index": index, "error_code": code} for index, code in enumerate(codes)],
        }
        for name, codes in errors.items()
    ]
    return {"producer_id": producer_id, "topics": topics}


def test_markers_of_several_transactions_go_in_one_request():
    first, second = Marker(Producer(1, 0), True, 5), Marker(Producer(2, 3), False, 6)
    markers = [MarkerToSend(A0, first), MarkerToSend(B0, second), MarkerToSend(A1, first)]
    answer = {"markers": [marked(1, a=[0, ErrorCode.NOT_LEADER_OR_FOLLOWER]), marked(2, b=[UNKNOWN_CODE])]}
    errors, (asked,), versions = exchange(write_markers, markers, [answer])
    assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert versions == [(ApiKey.WRITE_TXN_MARKERS, 1)]
    sent = {
        (one.producer_id, one.producer_epoch, one.transaction_result, one.coordinator_epoch): [
            (topic.name, topic.partition_indexes) for topic in one.topics
        ]
        for one in asked.markers
    }
    assert sent == {(1, 0, True, 5): [("a", (0, 1))], (2, 3, False, 6): [("b", (0,))]}


def test_two_markers_of_one_producer_go_one_after_the_other():
    """An answer names the producer's id alone."""
    markers = [MarkerToSend(A0, Marker(Producer(1, epoch), True, 0)) for epoch in (0, 1)]
    answers = [{"markers": [marked(1, a=[ErrorCode.INVALID_PRODUCER_EPOCH])]}, {"markers": [marked(1, a=[0])]}]
    errors, asked, _ = exchange(write_markers, markers, answers)
    assert errors == [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NONE]
    assert [one.markers[0].producer_epoch for one in asked] == [0, 1]


def test_a_marker_that_the_answer_does_not_name_is_not_written():
    errors, _, _ = exchange(write_markers, [MarkerToSend(A0, Marker(Producer(1, 0), True, 0))], [{"markers": []}])
    assert errors == [ErrorCode.UNKNOWN_SERVER_ERROR]


def told(transactional_id, *codes):
    partitions = [{"partition_index": index, "partition_error_code": code} for index, code in enumerate(codes)]
    return {
        "transactional_id": transactional_id,
        "topic_results": [{"name": "a", "results_by_partition": partitions}],
    }


def test_questions_about_several_transactions_go_in_one_request():
    questions = [
        Question("t", Producer(1, 0), (A0, A1), True),
        Question("u", Producer(2, 4), (A0,), False),
        Question("t", Producer(1, 0), (A0,), False),
    ]
    answers = [
        {"throttle_time": 0, "error_code": 0, "results_by_transaction": [
            told("t", 0, ErrorCode.TRANSACTION_ABORTABLE), told("u", ErrorCode.CONCURRENT_TRANSACTIONS),
        ]},
        {"throttle_time": 0, "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "results_by_transaction": []},
    ]  # fmt: skip
    errors, asked, versions = exchange(ask_about_partitions, questions, answers)
    assert errors == [
        {A0: ErrorCode.NONE, A1: ErrorCode.TRANSACTION_ABORTABLE},
        {A0: ErrorCode.CONCURRENT_TRANSACTIONS},
        {A0: ErrorCode.CLUSTER_AUTHORIZATION_FAILED},
    ]
    assert versions == [(ApiKey.ADD_PARTITIONS_TO_TXN, 5)] * 2
    sent = [
        [(one.transactional_id, one.producer_id, one.producer_epoch, one.verify_only) for one in each.transactions]
        for each in asked
    ]
    assert sent == [[("t", 1, 0, True), ("u", 2, 4, False)], [("t", 1, 0, False)]]
    assert [(one.name, one.partitions) for one in asked[0].transactions[0].topics] == [("a", (0, 1))]


def test_a_partition_that_the_answer_does_not_name_is_not_verified():
    answer = {"throttle_time": 0, "error_code": 0, "results_by_transaction": [told("t", 0)]}
    errors, _, _ = exchange(ask_about_partitions, [Question("t", Producer(1, 0), (A0, A1), True)], [answer])
    assert errors == [{A0: ErrorCode.NONE, A1: ErrorCode.UNKNOWN_SERVER_ERROR}]


def test_a_coordinator_that_knows_only_the_version_before_is_asked_by_that():
    """Apache Kafka 3.5 to 3.7."""
    answer = {"throttle_time": 0, "error_code": 0, "results_by_transaction": [told("t", ErrorCode.INVALID_TXN_STATE)]}
    question = Question("t", Producer(1, 0), (A0,), True)
    errors, _, versions = exchange(ask_about_partitions, [question], [answer], served=(0, 4))
    assert (errors, versions) == ([{A0: ErrorCode.INVALID_TXN_STATE}], [(ApiKey.ADD_PARTITIONS_TO_TXN, 4)])


def test_a_coordinator_that_can_not_be_asked_verifies_nothing_and_adds_nothing():
    """Apache Kafka up to 3.4, which takes only what clients send."""
    questions = [Question("t", Producer(1, 0), (A0,), True), Question("u", Producer(2, 0), (A1,), False)]
    errors, asked, _ = exchange(ask_about_partitions, questions, [], served=(0, 3))
    assert (errors, asked) == ([{A0: ErrorCode.NONE}, {A1: ErrorCode.UNSUPPORTED_VERSION}], [])
