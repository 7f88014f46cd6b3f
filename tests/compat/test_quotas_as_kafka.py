"""Throttle times are those that Apache Kafka's own classes compute, over thousands of random histories."""

from pathlib import Path
from random import Random

import pytest

from millrace.config import MAX_INT
from millrace_broker.quotas.measures import QuotaWindows, SampledRate, TokenBucket
from millrace_support.java_programs import with_program

JUDGE = Path(__file__).parent / "judges" / "Quotas.java"
HISTORIES, STEPS = 2_000, 60
WINDOWS = (QuotaWindows(11, 1_000), QuotaWindows(2, 1_000), QuotaWindows(5, 3_000))
START_MS = 1_700_000_000_000
PAUSES_MS = (0, 1, 30, 250, 999, 1_000, 1_001, 4_000, 11_000, 20_000)


def histories(seed):
    """Yields (quota, windows, [(time in ms, value)])."""
    random = Random(seed)
    for _ in range(HISTORIES):
        quota, now_ms, steps = random.choice((0.5, 3, 100, 1e6)), START_MS, []
        for _ in range(STEPS):
            now_ms += random.choice(PAUSES_MS)
            steps.append((now_ms, random.choice((0, 1, quota, random.random() * 20 * quota))))
        yield quota, random.choice(WINDOWS), steps


def rate(quota, windows, steps):
    measured = SampledRate(windows)
    for now_ms, value in steps:
        measured.record(value, now_ms)
        yield measured.throttle_ms(quota, now_ms)


def tokens(quota, windows, steps):
    bucket = TokenBucket(windows)
    for now_ms, value in steps:
        bucket.take(value, quota, now_ms)
        yield bucket.throttle_ms(quota, now_ms)


@pytest.mark.parametrize("measure", [rate, tokens])
def test_throttle_times_are_kafkas(kafka, measure):
    told = list(histories(seed=18))
    lines = [
        " ".join(map(str, (measure.__name__, quota, *windows, *(one for step in steps for one in step))))
        for quota, windows, steps in told
    ]
    answers = with_program(kafka, JUDGE).run(JUDGE.stem, stdin="\n".join(lines).encode()).splitlines()
    assert len(answers) == HISTORIES
    throttled = 0
    for history, answer in zip(told, answers, strict=True):
        ours, theirs = list(measure(*history)), [min(int(one), MAX_INT) for one in answer.split()]
        assert all(abs(our - their) <= 1 for our, their in zip(ours, theirs, strict=True)), "sums may be rounded"
        throttled += sum(map(bool, ours))
    assert throttled > HISTORIES
