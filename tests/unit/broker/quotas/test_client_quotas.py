"""What clients do at one broker, and how long they are throttled for it; the time is a number here."""

import pytest

from millrace.errors import ThrottlingQuotaExceededError
from millrace_broker.quotas.client_quotas import ClientQuotas
from millrace_broker.quotas.limits import Client
from millrace_broker.quotas.measures import QuotaWindows

APP, OTHER = Client("alice", "app"), Client("alice", "other")


def quotas(**configs):
    made = ClientQuotas()
    made.set_configs({path.replace("__", "/"): config for path, config in configs.items()})
    return made


def test_nothing_is_looked_up_before_there_is_a_quota():
    made = ClientQuotas()
    assert not made.is_enabled
    made.set_configs({"users/alice": {"SCRAM-SHA-256": "salt"}, "ips/1.2.3.4": {"connection_creation_rate": "1"}})
    assert not made.is_enabled
    made.set_configs({"clients/app": {"producer_byte_rate": "1"}})
    assert made.is_enabled
    made.set_configs({})
    assert made.is_enabled, "a response may still be under way that has a throttle time"
    assert made.produced(APP, 1 << 40, 0) == 0


def test_clients_of_a_user_share_its_quota():
    made = quotas(users__alice={"producer_byte_rate": "1000"})
    assert made.produced(APP, 6_000, 0) == 0
    assert made.produced(OTHER, 6_000, 0) == 2_000
    assert made.produced(Client("bob", "app"), 1 << 30, 0) == 0


def test_another_quota_holds_at_once_for_what_was_measured():
    made = quotas(users__alice={"producer_byte_rate": "1000"})
    assert made.produced(APP, 20_000, 0) == 10_000
    made.set_configs({"users/alice": {"producer_byte_rate": "4000"}})
    assert made.produced(APP, 0, 0) == 0
    made.set_configs({"users/alice": {"producer_byte_rate": "500"}})
    assert made.produced(APP, 0, 0) == 30_000


def test_a_fetch_that_is_throttled_counts_for_nothing():
    made = quotas(clients__app={"consumer_byte_rate": "1000"})
    assert made.fetched(APP, 10_000, 0.0, 0) == 0
    assert made.fetched(APP, 5_000, 0.0, 0) == 5_000
    assert made.fetched(APP, 1_000, 0.0, 0) == 1_000, "the 5,000 bytes were not sent"


def test_a_fetch_is_empty_too_where_its_time_exceeds_the_quota():
    made = quotas(clients__app={"consumer_byte_rate": "1000", "request_percentage": "1"})
    assert made.fetched(APP, 8_000, 1.0, 0) == 1_000
    made.set_configs({"clients/app": {"consumer_byte_rate": "1000"}})
    assert made.fetched(APP, 10_000, 0.0, 0) == 0


def test_a_fetch_is_cut_to_what_all_windows_allow():
    made = quotas(clients__app={"consumer_byte_rate": "1000"})
    assert made.fetch_max_bytes(APP, 1 << 20) == 10_000
    assert made.fetch_max_bytes(APP, 100) == 100
    assert made.fetch_max_bytes(OTHER, 1 << 20) == 1 << 20


def test_time_is_throttled_for_one_window_at_most():
    made = quotas(users__alice={"request_percentage": "10"})
    assert made.used(APP, 1.0, 0) == 0, "10 % of ten seconds"
    assert made.used(APP, 0.05, 0) == 500
    assert made.used(APP, 60.0, 0) == 1_000


def test_a_strict_quota_refuses_while_tokens_are_owed():
    made = ClientQuotas(controller_windows=QuotaWindows(10, 1_000))
    made.set_configs({"users/alice": {"controller_mutation_rate": "2"}})
    quota = made.mutations(APP, 0, is_strict=True)
    quota.record(25, 0)
    assert quota.throttle_ms(0) == 0, "a change may take more than there is"
    with pytest.raises(ThrottlingQuotaExceededError, match="2 is used up; try again in 2500 ms"):
        quota.record(1, 0)
    assert quota.throttle_ms(0) == 2_500
    assert quota.throttle_ms(1_000) == 1_500, "time passes until the answer leaves"
    made.mutations(APP, 2_500, is_strict=True).record(1, 2_500)


def test_a_permissive_quota_takes_everything_and_throttles():
    made = ClientQuotas(controller_windows=QuotaWindows(10, 1_000))
    made.set_configs({"users/alice": {"controller_mutation_rate": "2"}})
    quota = made.mutations(APP, 0, is_strict=False)
    quota.record(25, 0)
    assert quota.throttle_ms(0) == 2_500
    quota.record(1, 0)
    assert quota.throttle_ms(0) == 3_000
    assert made.mutations(APP, 0, is_strict=False).throttle_ms(0) == 0, "what a request has not recorded is not its own"


def test_changes_without_a_quota_are_free():
    quota = ClientQuotas().mutations(APP, 0, is_strict=True)
    quota.record(1 << 30, 0)
    assert quota.throttle_ms(0) == 0


def test_throttle_times_are_counted_by_kind():
    made = quotas(clients__app={"producer_byte_rate": "1000"})
    made.produced(APP, 30_000, 0)
    made.produced(APP, 1_000, 0)
    assert (made.counts.throttled["PRODUCE"], made.counts.throttle_ms["PRODUCE"]) == (2, 41_000)
