"""Which of the eight levels counts."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.zk.paths import encode_name
from millrace_broker.quotas.limits import Client, Limit, QuotaKind, QuotaLimits

ALICE = Client("alice", "app")
# In the order in which they count, with what is measured.
LEVELS = {
    "users/alice/clients/app": ALICE,
    "users/alice/clients/<default>": ALICE,
    "users/alice": Client("alice", ""),
    "users/<default>/clients/app": ALICE,
    "users/<default>/clients/<default>": ALICE,
    "users/<default>": Client("alice", ""),
    "clients/app": Client("", "app"),
    "clients/<default>": Client("", "app"),
}


def limits(paths, name="producer_byte_rate"):
    return QuotaLimits({path: {name: str(index)} for index, path in enumerate(paths)})


@pytest.mark.parametrize("chosen", list(product((False, True), repeat=len(LEVELS))), ids=str)
def test_the_first_level_that_has_the_quota_counts(chosen):
    paths = [path for path, is_there in zip(LEVELS, chosen, strict=True) if is_there]
    expected = Limit(LEVELS[paths[0]], 0.0) if paths else None
    assert limits(paths).find(QuotaKind.PRODUCE, ALICE) == expected
    assert limits(paths).find(QuotaKind.FETCH, ALICE) is None


def test_levels_of_one_kind_are_not_those_of_another():
    both = QuotaLimits(
        {
            "users/alice": {"producer_byte_rate": "1"},
            "clients/app": {"producer_byte_rate": "2", "request_percentage": "3.5"},
        }
    )
    assert both.find(QuotaKind.PRODUCE, ALICE) == Limit(Client("alice", ""), 1.0)
    assert both.find(QuotaKind.REQUEST, ALICE) == Limit(Client("", "app"), 3.5)


def test_a_client_without_an_id_has_the_quotas_of_its_user_alone():
    nobody = Client("alice", "")
    assert limits(path for path in LEVELS if "client" in path).find(QuotaKind.PRODUCE, nobody) is None
    assert limits(LEVELS).find(QuotaKind.PRODUCE, nobody) == Limit(nobody, 2.0)
    assert limits(["users/<default>"]).find(QuotaKind.PRODUCE, nobody) == Limit(nobody, 0.0)


@given(st.text(min_size=1, max_size=9), st.text(min_size=1, max_size=9))
def test_names_are_found_in_their_encoded_form(user, client_id):
    path = f"users/{encode_name(user)}/clients/{encode_name(client_id)}"
    client = Client(user, client_id)
    assert limits([path]).find(QuotaKind.PRODUCE, client) == Limit(client, 0.0)


def test_a_user_who_is_called_default_is_not_the_default():
    assert limits(["users/<default>"]).find(QuotaKind.PRODUCE, Client("<default>", "")) is not None
    assert limits(["users/%3Cdefault%3E"]).find(QuotaKind.PRODUCE, ALICE) is None


def test_what_is_no_number_does_not_count_and_is_logged(caplog):
    wrong = QuotaLimits({"users/alice": {"producer_byte_rate": "fast"}, "users/<default>": {"producer_byte_rate": "7"}})
    assert wrong.find(QuotaKind.PRODUCE, ALICE) == Limit(Client("alice", ""), 7.0)
    assert "producer_byte_rate=fast of users/alice" in caplog.text


def test_credentials_are_no_quotas():
    assert not QuotaLimits({"users/alice": {"SCRAM-SHA-256": "salt=..."}}).has_client_quotas
    assert limits(["clients/app"]).has_client_quotas


def test_an_address_has_its_own_rate_or_that_of_all():
    rates = limits(["ips/10.0.0.1", "ips/<default>"], "connection_creation_rate")
    assert (rates.connection_rate("10.0.0.1"), rates.connection_rate("10.0.0.2")) == (0.0, 1.0)
    assert limits(["ips/10.0.0.1"], "connection_creation_rate").connection_rate("10.0.0.2") is None
    assert not rates.has_client_quotas
