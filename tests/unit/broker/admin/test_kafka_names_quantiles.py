"""Quantiles from buckets, and the time that they are of."""

import pytest

from millrace_broker.admin.kafka_names import WINDOW_S, RecentBuckets, quantile

BOUNDS = (1.0, 2.0, 4.0)


@pytest.mark.parametrize(
    ("buckets", "share", "expected"),
    [
        ((0, 0, 0, 0), 0.5, 0.0),
        ((10, 0, 0, 0), 0.5, 0.5),
        ((0, 10, 0, 0), 0.5, 1.5),
        ((5, 0, 5, 0), 0.5, 1.0),
        ((5, 0, 5, 0), 0.75, 3.0),
        ((1, 0, 0, 9), 0.99, 4.0),
    ],
)
def test_quantiles_lie_evenly_in_their_bucket(buckets, share, expected):
    assert quantile(BOUNDS, buckets, share) == pytest.approx(expected)


def test_what_is_older_than_two_windows_counts_no_more():
    now = 0.0
    recent = RecentBuckets(lambda: now)
    assert recent.since("a", (5.0,)) == (5.0,)
    now = WINDOW_S - 1
    assert recent.since("a", (6.0,)) == (6.0,)
    now = WINDOW_S
    assert recent.since("a", (7.0,)) == (7.0,)
    assert recent.since("a", (8.0,)) == (3.0,)
    now = 2 * WINDOW_S
    assert recent.since("a", (9.0,)) == (4.0,)
    assert recent.since("a", (9.0,)) == (2.0,)
    assert recent.since("b", (1.0,)) == (1.0,)
