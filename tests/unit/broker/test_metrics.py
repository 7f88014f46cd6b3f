"""The times of requests, as they are counted."""

from millrace_broker.metrics import REQUEST_BOUNDS_S, RequestMetrics, RequestTimes

FETCH = 1


def bucket(seconds):
    return next(number for number, bound in enumerate((*REQUEST_BOUNDS_S, float("inf"))) if seconds <= bound)


def test_requests_that_were_handled_together_share_the_time_of_the_handler():
    metrics = RequestMetrics()
    count = metrics.handled(FETCH, 4, 400, queue_s=0.02, handler_s=0.04)
    assert (count.requests, count.bytes_in) == (4, 400)
    assert (count.queue.buckets[bucket(0.02)], count.queue.sum_s) == (4, 0.08)
    assert (count.local.buckets[bucket(0.01)], count.local.sum_s) == (4, 0.04)


def test_phases_add_up_to_the_total():
    metrics = RequestMetrics()
    count = metrics.handled(FETCH, 1, 100, queue_s=1.0, handler_s=2.0)
    count.sent(1, 50, RequestTimes(arrived=10.0, started=11.0, handled=13.0), answered=17.0, now=18.5)
    phases = [count.queue, count.local, count.remote, count.send]
    assert [one.sum_s for one in phases] == [1.0, 2.0, 4.0, 1.5]
    assert count.total.sum_s == sum(one.sum_s for one in phases)
    assert count.total.buckets[bucket(8.5)] == 1
    assert count.bytes_out == 50


def test_an_answer_that_did_not_wait_has_no_remote_time():
    count = RequestMetrics().handled(FETCH, 2, 100, queue_s=0.0, handler_s=0.5)
    count.sent(2, 50, RequestTimes(arrived=1.0, started=1.0, handled=1.5), answered=1.5, now=1.6)
    assert sum(count.remote.buckets) == 0
    assert sum(count.total.buckets) == sum(count.send.buckets) == 2


def test_what_is_longer_than_all_bounds_is_in_the_last_bucket():
    count = RequestMetrics().handled(FETCH, 1, 1, queue_s=3600.0, handler_s=0.0)
    assert count.queue.buckets[-1] == 1
