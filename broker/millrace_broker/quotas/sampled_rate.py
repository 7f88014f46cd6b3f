"""The measured rate of something that is limited, as Apache Kafka's Rate over a SampledStat measures it.

    samples        |----|----|----| … |--        each begins with the first value that comes after a window's length
    rate           sum of all samples / time since the oldest one began, but at least all windows except the running one
    throttle time  (rate - quota) / quota * that time: until then the rate would be the quota, if nothing more came

A sample that has had no value for all windows is forgotten.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from millrace.config import MAX_INT


class QuotaWindows(NamedTuple):
    """How many windows are measured, and how long one is (`quota.window.num` and `quota.window.size.seconds`)."""

    number: int = 11
    window_ms: int = 1_000

    @property
    def whole_seconds(self) -> float:
        """The length of all windows except the running one."""
        return (self.number - 1) * self.window_ms / 1000


DEFAULT_WINDOWS = QuotaWindows()


@dataclass(slots=True)
class _Sample:
    start_ms: int
    last_ms: int
    value: float = 0.0


class SampledRate:
    """The rate per second of the values that are recorded."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque(maxlen=windows.number + 1)

    def record(self, value: float, now_ms: int) -> None:
        """Counts a value; a negative one takes back what was counted."""
        if not self._samples or now_ms - self._samples[-1].start_ms >= self._windows.window_ms:
            self._samples.append(_Sample(now_ms, now_ms))
        sample = self._samples[-1]
        sample.value += value
        sample.last_ms = now_ms

    def per_second(self, now_ms: int) -> float:
        """Returns the measured rate."""
        span_ms = self._span_ms(now_ms)
        return sum([sample.value for sample in self._samples]) * 1000 / span_ms

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """Returns how long nothing more may come until the rate is within the quota; 0 where it is."""
        rate = self.per_second(now_ms)
        if rate <= quota:
            return 0
        return bounded_ms((rate - quota) / quota * self._span_ms(now_ms)) if quota else MAX_INT

    def _span_ms(self, now_ms: int) -> int:
        number, window_ms = self._windows
        while self._samples and now_ms - self._samples[0].last_ms >= number * window_ms:
            self._samples.popleft()
        elapsed_ms = now_ms - self._samples[0].start_ms if self._samples else 0
        missing = max(number - 1 - elapsed_ms // window_ms, 0)
        return max(elapsed_ms + missing * window_ms, 1)


def bounded_ms(milliseconds: float) -> int:
    """Returns a time as the protocol has it: rounded as Java does, and at most the greatest int32."""
    return min(math.floor(milliseconds + 0.5), MAX_INT) if milliseconds < MAX_INT else MAX_INT
