"""How many connections may be opened per second."""

from millrace_broker.net.admission import BROKER, ConnectionRates


def opened(rates, count, scopes, now_ms=0):
    return [rates.opened(scopes, now_ms) for _ in range(count)]


def test_connections_above_the_rate_wait_for_one_window_at_most():
    waits = opened(ConnectionRates(), 13, {BROKER: 1.0, "PLAINTEXT": None})
    assert waits[:10] == [0] * 10, "the quota of all windows is a burst"
    assert waits[10:] == [1_000, 1_000, 1_000]


def test_the_longer_wait_of_broker_and_listener_counts():
    rates = ConnectionRates()
    opened(rates, 10, {BROKER: 100.0, "A": 1.0})
    assert rates.opened({BROKER: 100.0, "A": 1.0}, 0) == 1_000
    assert rates.opened({BROKER: 100.0, "B": 1.0}, 0) == 0
    assert rates.opened({"A": None}, 0) == 0


def test_a_connection_above_the_rate_of_its_address_counts_nowhere():
    rates, scopes = ConnectionRates(), {BROKER: 2.0, "A": None}
    for _ in range(10):
        assert (rates.opened(scopes, 0), rates.came_from("10.0.0.1", 1.0, scopes, 0)) == (0, 0)
    for _ in range(50):
        assert (rates.opened(scopes, 0), rates.came_from("10.0.0.1", 1.0, scopes, 0)) == (0, 1_000)
    assert rates.came_from("10.0.0.2", 1.0, scopes, 0) == 0
    assert rates.came_from("10.0.0.1", None, scopes, 0) == 0
    assert opened(rates, 11, scopes)[-2:] == [0, 500]
