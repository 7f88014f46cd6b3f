"""Keeps what is measured for each client: for so many clients at most, and not longer than an hour of silence."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

EXPIRY_MS = 3_600_000
MAX_SENSORS = 10_000  # of each kind of quota

Key = TypeVar("Key", bound=Hashable)
Sensor = TypeVar("Sensor")


class Sensors(Generic[Key, Sensor]):
    """Sensors by key. Where there are too many, the one that has been silent for longest gives way."""

    def __init__(self, new_sensor: Callable[[], Sensor], max_sensors: int = MAX_SENSORS) -> None:
        self._new_sensor = new_sensor
        self._max_sensors = max_sensors
        self._used: OrderedDict[Key, tuple[int, Sensor]] = OrderedDict()  # the one that is silent for longest first

    def __len__(self) -> int:
        return len(self._used)

    def get(self, key: Key, now_ms: int) -> Sensor:
        """Returns the sensor of a key, which is made where there is none."""
        found = self._used.pop(key, None)
        sensor = self._new_sensor() if found is None or now_ms - found[0] >= EXPIRY_MS else found[1]
        self._used[key] = now_ms, sensor
        if found is None:
            self._forget(now_ms)
        return sensor

    def _forget(self, now_ms: int) -> None:
        while len(self._used) > self._max_sensors or now_ms - next(iter(self._used.values()))[0] >= EXPIRY_MS:
            self._used.popitem(last=False)
