"""That the differential test can fail: what its comparison sees and lets pass, and a codec that is not ours."""

from uuid import UUID

import pytest
from differential.compare import differences, masked
from differential.differences import records_a_client_takes
from differential.session import batch

from millrace.records.message_set import encode_message_set
from millrace.records.record import Record
from millrace.wire.cold import Direction, decode
from millrace_support.kafka_messages import Messages

ANSWER = {"throttleTimeMs": 0, "topics": [{"name": "a", "errorCode": 0}, {"name": "b", "errorCode": 3}]}


@pytest.fixture(scope="module")
def messages(find_peer):
    return Messages([find_peer("4.1"), find_peer("3.9")])


def found(theirs, ours, api="Metadata"):
    return differences(masked(api, [theirs]), masked(api, [ours]))


def test_the_order_of_entries_is_free_and_their_content_is_not():
    assert found(ANSWER, {**ANSWER, "topics": ANSWER["topics"][::-1]}) == []
    wrong = {**ANSWER, "topics": [{"name": "a", "errorCode": 0}, {"name": "b", "errorCode": 5}]}
    assert found(ANSWER, wrong) == [("[0].topics[1].errorCode", 3, 5)]
    assert found(ANSWER, {**ANSWER, "topics": ANSWER["topics"][:1]})
    assert found(ANSWER, {**ANSWER, "more": 1})


def test_the_order_of_answers_is_not_free():
    one, two = ({"errorCode": code} for code in (0, 1))
    assert differences(masked("Fetch", [one, two]), masked("Fetch", [two, one]))


@pytest.mark.parametrize(
    ("theirs", "ours", "differ"),
    [
        ("their words", "our words", False),
        (None, "our words", False),
        ("their words", None, True),
        ("", "our words", False),
    ],
)
def test_a_text_may_be_another_but_not_be_missing(theirs, ours, differ):
    assert bool(found({"errorMessage": theirs}, {"errorMessage": ours})) == differ


def test_ids_and_clocks_are_masked_and_their_absence_is_not():
    assert found({"topicId": UUID(int=1)}, {"topicId": UUID(int=2)}) == []
    assert found({"topicId": UUID(int=1)}, {"topicId": UUID(int=0)})
    assert found({"logAppendTimeMs": 17}, {"logAppendTimeMs": 18}, "Produce") == []
    assert found({"logAppendTimeMs": 17}, {"logAppendTimeMs": -1}, "Produce")


def test_a_cut_batch_is_as_good_as_none():
    whole = batch(1) + batch(2)
    assert records_a_client_takes(whole + batch(3)[:-1]) == whole
    assert records_a_client_takes(whole) != records_a_client_takes(batch(1))
    assert records_a_client_takes(None) == records_a_client_takes(b"")


def test_of_converted_messages_the_first_counts():
    one, two = (Record(0, 5, b"k", value) for value in (b"one", b"two"))
    longer = encode_message_set([one, two._replace(offset=1)], magic=1)
    assert records_a_client_takes(longer) == records_a_client_takes(encode_message_set([one], magic=1))
    assert records_a_client_takes(longer) != records_a_client_takes(encode_message_set([two], magic=1))


@pytest.mark.parametrize("version", range(1, 14))
def test_two_codecs_that_share_nothing_agree(messages, version):
    fields = {"topics": [{"name": "a", "topicId": UUID(int=7)}, {"name": "b", "topicId": UUID(int=0)}]}
    decoded = decode(3, version, Direction.REQUEST, messages.encode("MetadataRequest", version, fields))
    assert [topic.name for topic in decoded.topics] == ["a", "b"]


def test_bytes_left_over_are_an_error(messages):
    answer = messages.encode("HeartbeatResponse", 4, {"throttleTimeMs": 0, "errorCode": 27})
    assert messages.decode("HeartbeatResponse", 4, answer)["errorCode"] == 27
    with pytest.raises(Exception, match="1 bytes are left over"):
        messages.decode("HeartbeatResponse", 4, answer + b"\x00")
