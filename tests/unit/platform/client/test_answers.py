"""Error codes become typed errors."""

from types import SimpleNamespace

import pytest

from millrace.client.answers import TYPED_ERRORS, check, is_retriable
from millrace.client.connection import asking_for
from millrace.error_codes import error_sentence
from millrace.errors import BrokerError, ClientError, ErrorCode, OffsetOutOfRangeError, TopicExistsError


def caught(code, subject="topic t", message=None):
    with pytest.raises(Exception) as info:
        check(code, subject, message)
    return info.value


def test_no_error_passes():
    check(0, "anything")


@pytest.mark.parametrize("code", TYPED_ERRORS)
def test_a_code_with_a_class_raises_it(code):
    error = caught(code)
    assert type(error) is TYPED_ERRORS[code]
    assert error.code == code


def test_any_other_code_is_kept():
    error = caught(74_000)
    assert isinstance(error, BrokerError)
    assert error.broker_code == 74_000
    assert str(error) == "topic t: the broker refuses for a reason that has no name here (error 74000)"


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_is_a_sentence_with_its_name_in_brackets(code):
    sentence = error_sentence(code)
    assert sentence.endswith(f" ({code.name})")
    assert len(sentence.removesuffix(f" ({code.name})").split()) > 2


def test_a_brokers_own_message_has_the_name_behind_it_once():
    assert str(caught(ErrorCode.INVALID_REQUEST, message="it makes no sense")) == (
        "topic t: it makes no sense (INVALID_REQUEST)"
    )
    assert str(caught(ErrorCode.NON_EMPTY_GROUP, "group g")) == ("group g: the group is not empty (NON_EMPTY_GROUP)")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (None, "topic t: it already exists (TOPIC_ALREADY_EXISTS)"),
        ("it is there", "topic t: it is there"),
        ("topic t exists", "topic t exists"),
    ],
)
def test_the_subject_is_named_once(message, text):
    error = caught(ErrorCode.TOPIC_ALREADY_EXISTS, "topic t", message)
    assert isinstance(error, TopicExistsError)
    assert str(error) == text


@pytest.mark.parametrize(
    ("code", "retriable"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.LEADER_NOT_AVAILABLE, True),
        (ErrorCode.NOT_CONTROLLER, True),
        (ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (ErrorCode.MESSAGE_TOO_LARGE, False),
        # It was appended, only not replicated in time: sent again, it would be there twice.
        (ErrorCode.REQUEST_TIMED_OUT, False),
    ],
)
def test_only_what_was_not_done_and_may_pass_is_retried(code, retriable):
    assert is_retriable(caught(code)) is retriable


def test_errors_of_python_are_not_retried():
    assert not is_retriable(ValueError("x"))
    assert not is_retriable(OffsetOutOfRangeError("x"))


class Answering:
    """A connection whose broker gives one answer to everything."""

    address = "broker:9092"

    def __init__(self, *results):
        self._results = results

    def request(self, *_):
        return SimpleNamespace(results=self._results)


def test_the_part_of_an_answer_is_given_and_its_error_raised():
    action = asking_for((), lambda answer: answer.results[0], "topic t")
    part = SimpleNamespace(error_code=0)
    assert action(Answering(part)) is part
    with pytest.raises(TopicExistsError, match=r"^topic t: "):
        action(Answering(SimpleNamespace(error_code=ErrorCode.TOPIC_ALREADY_EXISTS)))


def test_an_answer_that_says_nothing_of_what_was_asked_is_an_error():
    with pytest.raises(ClientError, match="topic t: the answer of broker:9092 says nothing of it"):
        asking_for((), lambda answer: answer.results[0], "topic t")(Answering())
