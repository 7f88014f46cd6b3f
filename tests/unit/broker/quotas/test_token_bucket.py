"""The bucket of tokens for changes of topics, with the numbers of KIP-599."""

from hypothesis import given
from hypothesis import strategies as st

from millrace.config import MAX_INT
from millrace_broker.quotas.measures import QuotaWindows, TokenBucket

KIP_599 = QuotaWindows(100, 1_000)


def test_a_burst_is_paid_back_at_the_rate_of_the_quota():
    bucket = TokenBucket(KIP_599)
    assert bucket.tokens(5, 0) == 500
    bucket.take(560, 5, 0)
    assert bucket.tokens(5, 0) == -60
    assert bucket.throttle_ms(5, 0) == 12_000
    assert bucket.throttle_ms(5, 11_999) == 1
    assert bucket.throttle_ms(5, 12_000) == 0


def test_a_bucket_is_full_at_the_burst():
    bucket = TokenBucket(KIP_599)
    bucket.take(100, 5, 0)
    assert bucket.tokens(5, 10_000_000) == 500


def test_another_quota_holds_at_once():
    bucket = TokenBucket(KIP_599)
    bucket.take(510, 5, 0)
    assert bucket.throttle_ms(5, 0) == 2_000
    assert bucket.throttle_ms(20, 0) == 500


def test_a_quota_of_nothing_never_fills_the_bucket():
    bucket = TokenBucket(KIP_599)
    bucket.take(1, 0, 0)
    assert bucket.throttle_ms(0, 1_000_000) == MAX_INT


@given(st.lists(st.tuples(st.integers(0, 9_000), st.integers(0, 400)), max_size=50), st.integers(1, 50))
def test_never_more_is_taken_than_burst_and_rate_allow(steps, quota):
    bucket, now_ms, taken, largest = TokenBucket(KIP_599), 0, 0, 0
    for pause_ms, tokens in steps:
        now_ms += pause_ms
        if not bucket.throttle_ms(quota, now_ms):
            bucket.take(tokens, quota, now_ms)
            taken, largest = taken + tokens, max(largest, tokens)
    assert taken <= 100 * quota + quota * now_ms / 1000 + largest
