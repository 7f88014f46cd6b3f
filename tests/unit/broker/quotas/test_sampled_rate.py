"""The measured rate: Kafka's own examples, and a plain model of its samples."""

from hypothesis import given
from hypothesis import strategies as st

from millrace.config import MAX_INT
from millrace_broker.quotas.measures import QuotaWindows, SampledRate

WINDOWS = QuotaWindows(11, 1_000)


class Model:
    """All values that were ever recorded, by time; Kafka's rule is applied to all of them again each time."""

    def __init__(self, windows):
        self.windows = windows
        self.recorded = []

    def samples(self, now_ms):
        """Returns [start, last, sum] of each sample that still counts."""
        samples = []
        for at_ms, value in self.recorded:
            if not samples or at_ms - samples[-1][0] >= self.windows.window_ms:
                samples.append([at_ms, at_ms, 0])
            samples[-1][1] = at_ms
            samples[-1][2] += value
        return [one for one in samples if now_ms - one[1] < self.windows.number * self.windows.window_ms]

    def rate(self, now_ms):
        samples, (number, window_ms) = self.samples(now_ms), self.windows
        elapsed_ms = now_ms - samples[0][0] if samples else 0
        full = elapsed_ms // window_ms
        span_ms = elapsed_ms + max(0, number - 1 - full) * window_ms
        return sum(one[2] for one in samples) * 1000 / max(span_ms, 1)


STEPS = st.lists(st.tuples(st.integers(0, 15_000), st.integers(0, 10_000)), max_size=60)


@given(st.builds(QuotaWindows, st.integers(2, 12), st.sampled_from((1_000, 2_000))), STEPS)
def test_the_rate_is_that_of_the_model(windows, steps):
    rate, model, now_ms = SampledRate(windows), Model(windows), 1_000_000
    for pause_ms, value in steps:
        now_ms += pause_ms
        rate.record(value, now_ms)
        model.recorded.append((now_ms, value))
        assert abs(rate.per_second(now_ms) - model.rate(now_ms)) <= 1e-9 * model.rate(now_ms)


@given(st.lists(st.tuples(st.integers(0, 15_000), st.integers(0, 100)), max_size=200), st.integers(100, 5_000))
def test_a_client_that_waits_as_it_is_told_keeps_to_its_quota(steps, quota):
    """As long as each request is small: one of many seconds' quota is forgotten before it is paid back, as in Kafka."""
    rate, now_ms, sent = SampledRate(WINDOWS), 0, 0
    for pause_ms, value in steps:
        assert sent <= quota * ((now_ms + 1) / 1000 + WINDOWS.whole_seconds), "a burst, and the rate ever since"
        rate.record(value, now_ms)
        sent += value
        now_ms += pause_ms + rate.throttle_ms(quota, now_ms)


def test_kafkas_example_of_throttling():
    """ClientQuotaManagerTest.testQuotaViolation: 500 bytes per second, 400 in each second, then a burst of 2,300."""
    rate, now_ms = SampledRate(WINDOWS), 0
    for _ in range(10):
        rate.record(400, now_ms)
        assert rate.throttle_ms(500, now_ms) == 0
        now_ms += 1_000
    now_ms += 500
    rate.record(2_300, now_ms)
    assert rate.throttle_ms(500, now_ms) == 2_100
    now_ms += 2_100
    for _ in range(10):
        rate.record(400, now_ms)
        now_ms += 1_000
    assert rate.throttle_ms(500, now_ms) == 0, "the sample of the burst is over"


def test_what_is_taken_back_was_never_there():
    rate = SampledRate(WINDOWS)
    rate.record(500, 0)
    before = rate.per_second(0)
    rate.record(70_000, 0)
    rate.record(-70_000, 0)
    assert rate.per_second(0) == before


def test_a_quota_of_nothing_stops_the_client():
    rate = SampledRate(WINDOWS)
    assert rate.throttle_ms(0, 0) == 0
    rate.record(1, 0)
    assert rate.throttle_ms(0, 0) == MAX_INT


def test_a_throttle_time_fits_the_protocol():
    rate = SampledRate(WINDOWS)
    rate.record(1 << 60, 0)
    assert rate.throttle_ms(1, 0) == MAX_INT
