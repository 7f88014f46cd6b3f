"""What becomes of users' SCRAM credentials by a request to alter them."""

import pytest

from millrace.errors import (
    DuplicateResourceError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from millrace.security.sasl.scram import credential_of, credential_text, parse_credential, salted_password
from millrace_broker.security.authentication.credentials import Deletion, Upsertion, altered, by_user

SALT = b"salt"
SALTED = salted_password("sha256", "pencil", SALT, 4096)
UPSERTION = Upsertion("alice", 1, 4096, SALT, SALTED)
CREDENTIAL = credential_text(credential_of("SCRAM-SHA-256", SALTED, SALT, 4096))


def test_a_credential_is_made_replaced_and_deleted():
    made = altered({"producer_byte_rate": "1"}, [UPSERTION, Upsertion("alice", 2, 8192, SALT, b"x" * 64)])
    assert made["SCRAM-SHA-256"] == CREDENTIAL
    assert parse_credential(made["SCRAM-SHA-512"]).iterations == 8192
    replaced = altered(made, [Upsertion("alice", 1, 5000, SALT, SALTED)])
    assert parse_credential(replaced["SCRAM-SHA-256"]).iterations == 5000
    assert altered(replaced, [Deletion("alice", 1), Deletion("alice", 2)]) == {"producer_byte_rate": "1"}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ([Upsertion("alice", 1, 4095, SALT, SALTED)], UnacceptableCredentialError),
        ([Upsertion("alice", 1, 16385, SALT, SALTED)], UnacceptableCredentialError),
        ([Upsertion("", 1, 4096, SALT, SALTED)], UnacceptableCredentialError),
        ([Upsertion("alice", 0, 4096, SALT, SALTED)], UnsupportedSaslMechanismError),
        ([Deletion("alice", 3)], UnsupportedSaslMechanismError),
        ([UPSERTION, Deletion("alice", 1)], DuplicateResourceError),
        ([Deletion("alice", 1)], ResourceNotFoundError),
    ],
)
def test_what_is_refused(changes, error):
    with pytest.raises(error):
        altered({"SCRAM-SHA-512": CREDENTIAL}, changes)


def test_each_user_is_altered_by_itself():
    deletion = Deletion("bob", 1)
    assert by_user([UPSERTION, deletion, UPSERTION]) == {"alice": [UPSERTION, UPSERTION], "bob": [deletion]}


def test_no_secret_is_shown():
    assert repr(UPSERTION) == "Upsertion(user='alice', mechanism=1, iterations=4096)"
