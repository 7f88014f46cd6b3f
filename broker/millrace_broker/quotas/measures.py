"""What is measured of clients, as Apache Kafka does it: rates over sampled windows, and buckets of tokens (KIP-599).

    samples        |----|----|----| … |--        each begins with the first value that comes after a window's length
    rate           sum of all samples / time since the oldest one began, but at least all windows except the running one
    throttle time  (rate - quota) / quota * that time: until then the rate would be the quota, if nothing more came

A sample that has had no value for all windows is forgotten.

A bucket begins full, with what the quota allows in all windows, and fills at the quota's rate. One change may take more
tokens than there are: then the bucket owes them, and it is exhausted until it has filled up to none again.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from millrace.config import MAX_INT

EXPIRY_MS = 3_600_000
MAX_SENSORS = 10_000  # of each kind of quota

Key = TypeVar("Key", bound=Hashable)
Sensor = TypeVar("Sensor")


class QuotaWindows(NamedTuple):
    """In how many windows of time a rate is measured, and how long each is (`quota.window.num`, `…size.seconds`)."""

    number: int = 11
    window_ms: int = 1_000

    @property
    def whole_seconds(self) -> float:
        """Returns the length, in seconds, of all windows but the running one."""
        return (self.number - 1) * self.window_ms / 1000


DEFAULT_WINDOWS = QuotaWindows()


@dataclass(slots=True)
class _Sample:
    start_ms: int
    last_ms: int
    value: float = 0.0


class SampledRate:
    """Measures the rate per second of recorded values, over the last windows of time."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque(maxlen=windows.number + 1)

    def record(self, value: float, now_ms: int) -> None:
        """Adds a value; a negative one takes back what was added."""
        if not self._samples or now_ms - self._samples[-1].start_ms >= self._windows.window_ms:
            self._samples.append(_Sample(now_ms, now_ms))
        sample = self._samples[-1]
        sample.value += value
        sample.last_ms = now_ms

    def per_second(self, now_ms: int) -> float:
        """Returns the sum of the values in all windows, per second."""
        span_ms = self._span_ms(now_ms)
        return sum([sample.value for sample in self._samples]) * 1000 / span_ms

    def simple_per_second(self, now_ms: int) -> float:
        """Returns the same sum per second since the oldest sample began, but of one window at least (SimpleRate)."""
        self._span_ms(now_ms)  # forgets old samples
        if not self._samples:
            return 0.0
        elapsed_ms = max(now_ms - self._samples[0].start_ms, self._windows.window_ms)
        return sum([sample.value for sample in self._samples]) * 1000 / elapsed_ms

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """Returns after how many ms without values the rate is within the quota; 0 where it is now."""
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
    """Returns a time in whole milliseconds, rounded as Java does, and at most the greatest int32."""
    return min(math.floor(milliseconds + 0.5), MAX_INT) if milliseconds < MAX_INT else MAX_INT


class Sensors(Generic[Key, Sensor]):
    """Keeps a rate or a bucket for each key; drops the one that was unused for longest if there are too many."""

    def __init__(self, new_sensor: Callable[[], Sensor], max_sensors: int = MAX_SENSORS) -> None:
        self._new_sensor = new_sensor
        self._max_sensors = max_sensors
        self._used: OrderedDict[Key, tuple[int, Sensor]] = OrderedDict()  # the one that is silent for longest first

    def __len__(self) -> int:
        return len(self._used)

    def get(self, key: Key, now_ms: int) -> Sensor:
        """Returns the rate or bucket of a key; a new one where there is none, or it was unused for EXPIRY_MS."""
        found = self._used.pop(key, None)
        sensor = self._new_sensor() if found is None or now_ms - found[0] >= EXPIRY_MS else found[1]
        self._used[key] = now_ms, sensor
        if found is None:
            while len(self._used) > self._max_sensors or now_ms - next(iter(self._used.values()))[0] >= EXPIRY_MS:
                self._used.popitem(last=False)
        return sensor


class TokenBucket:
    """A bucket of tokens; the quota (tokens per second that come in) is passed each time, as it may change."""

    __slots__ = ("_burst_seconds", "_last_ms", "_tokens")

    def __init__(self, windows: QuotaWindows) -> None:
        self._burst_seconds = windows.number * windows.window_ms / 1000
        self._tokens = float("inf")
        self._last_ms = 0

    def tokens(self, quota: float, now_ms: int) -> float:
        """Returns how many tokens are in the bucket; below 0 where tokens are owed."""
        filled = self._tokens + quota * (now_ms - self._last_ms) / 1000
        self._tokens = min(self._burst_seconds * quota, filled)
        self._last_ms = now_ms
        return self._tokens

    def take(self, tokens: float, quota: float, now_ms: int) -> None:
        """Takes tokens from the bucket, which may then owe some."""
        self._tokens = self.tokens(quota, now_ms) - tokens

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """Returns in how many milliseconds no token will be owed; 0 where none is."""
        tokens = self.tokens(quota, now_ms)
        if tokens >= 0:
            return 0
        return bounded_ms(-tokens / quota * 1000) if quota else MAX_INT
