"""What a client asks for its authentication, and what it makes of the answers."""

from datetime import timedelta
from types import SimpleNamespace

import pytest

from millrace.client.connection import authentication, renewal_s
from millrace.errors import ErrorCode, IllegalSaslStateError, SaslAuthenticationError, UnsupportedSaslMechanismError
from millrace.wire.messages import SASL_AUTHENTICATE, SASL_HANDSHAKE


class TwoSteps:
    """A mechanism that says two things, and is convinced by the second answer."""

    name = "TWO-STEPS"
    is_complete = False

    def initial_response(self):
        return b"first"

    def respond(self, challenge):
        self.is_complete = challenge == b"proof"
        return b"second" if challenge == b"challenge" else b""


def handshake(code=ErrorCode.NONE):
    return SimpleNamespace(error_code=code, mechanisms=["PLAIN", "SCRAM-SHA-256"])


def answer(challenge=b"", code=ErrorCode.NONE, message=None, lifetime_s=0):
    return SimpleNamespace(
        error_code=code, error_message=message, auth_bytes=challenge, session_lifetime=timedelta(seconds=lifetime_s)
    )


def carried_out(*answers):
    """What was asked, and the generator's result."""
    steps = authentication(TwoSteps(), "the broker at a:1")
    asked = [next(steps)]
    for one in answers:
        try:
            asked.append(steps.send(one))
        except StopIteration as done:
            return asked, done.value
    raise AssertionError("more is asked")


def test_the_mechanism_is_agreed_on_then_its_messages_go():
    asked, again_s = carried_out(handshake(), answer(b"challenge"), answer(b"proof"))
    assert [(one.api.key, one.fields) for one in asked] == [
        (SASL_HANDSHAKE.key, {"mechanism": "TWO-STEPS"}),
        (SASL_AUTHENTICATE.key, {"auth_bytes": b"first"}),
        (SASL_AUTHENTICATE.key, {"auth_bytes": b"second"}),
    ]
    assert again_s is None


def test_a_session_is_renewed_before_its_end_and_not_by_all_at_once():
    _, again_s = carried_out(handshake(), answer(b"challenge"), answer(b"proof", lifetime_s=100))
    assert 85 <= again_s <= 95
    assert len({renewal_s(100) for _ in range(10)}) > 1


def test_a_mechanism_that_is_not_offered():
    expected = r"^the broker at a:1 does not offer sasl\.mechanism=TWO-STEPS; it offers PLAIN, SCRAM-SHA-256$"
    with pytest.raises(UnsupportedSaslMechanismError, match=expected):
        carried_out(handshake(ErrorCode.UNSUPPORTED_SASL_MECHANISM))


def test_a_broker_that_takes_no_authentication_now():
    with pytest.raises(IllegalSaslStateError, match=r"^the broker at a:1 takes no authentication now: "):
        carried_out(handshake(ErrorCode.ILLEGAL_SASL_STATE))


def test_credentials_that_are_not_taken():
    expected = r"^the broker at a:1 does not accept the credentials of sasl\.jaas\.config: no such user or password$"
    refused = answer(code=ErrorCode.SASL_AUTHENTICATION_FAILED, message="no such user or password")
    with pytest.raises(SaslAuthenticationError, match=expected):
        carried_out(handshake(), refused)


def test_a_broker_that_can_t_prove_itself():
    with pytest.raises(SaslAuthenticationError, match="has not proven that it knows the user's password"):
        carried_out(handshake(), answer(b"something else"))
