"""Sensors are bounded, and expire."""

from millrace_broker.quotas.measures import EXPIRY_MS, Sensors


def test_a_sensor_stays_as_long_as_it_is_used():
    sensors = Sensors[str, object](object)
    first = sensors.get("a", 0)
    assert sensors.get("a", EXPIRY_MS - 1) is first
    assert sensors.get("a", 2 * EXPIRY_MS - 2) is first
    assert sensors.get("a", 3 * EXPIRY_MS) is not first


def test_silent_sensors_are_forgotten_when_another_comes():
    sensors = Sensors[str, object](object)
    for name in "abc":
        sensors.get(name, 0)
    sensors.get("d", EXPIRY_MS)
    assert len(sensors) == 1


def test_the_one_that_is_silent_for_longest_gives_way():
    sensors = Sensors[str, object](object, max_sensors=2)
    first, _ = sensors.get("a", 0), sensors.get("b", 1)
    assert sensors.get("a", 2) is first
    sensors.get("c", 3)
    assert len(sensors) == 2
    assert sensors.get("a", 4) is first
