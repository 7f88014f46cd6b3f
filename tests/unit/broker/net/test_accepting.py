"""New connections wait for their turn, or are closed later; the time is a number here."""

import heapq
from itertools import count

from millrace_broker.metrics import QuotaCounts
from millrace_broker.net.admission import BROKER, Accepting, ConnectionRates
from millrace_broker.security.client_session import ClientSession


class Home:
    """A server with a timer; its connections note what becomes of them, and when."""

    def __init__(self, broker_limit=None, listener_limits=None, address_limits=None):
        self.now_ms, self.timers, self.order = 0, [], count()
        self.limits = {BROKER: broker_limit}, listener_limits or {}, address_limits or {}
        self.counts = QuotaCounts()
        self.accepting = Accepting(
            ConnectionRates(),
            lambda listener: {**self.limits[0], listener: self.limits[1].get(listener)},
            self.limits[2].get,
            self.counts,
            now_ms=lambda: self.now_ms,
            call_later=lambda delay_s, action: heapq.heappush(
                self.timers, (self.now_ms + round(delay_s * 1000), next(self.order), action)
            ),
        )

    def open(self, address="10.0.0.1", listener="A"):
        connection = Opened(self, ClientSession(address, listener))
        self.accepting.take(connection)
        return connection

    def run(self, until_ms):
        while self.timers and self.timers[0][0] <= until_ms:
            self.now_ms, _, action = heapq.heappop(self.timers)
            action()
        self.now_ms = until_ms


class Opened:
    def __init__(self, home, session):
        self.home, self.session, self.fate = home, session, "read"

    def mute(self):
        self.fate = "waits"

    def unmute(self):
        self.fate = f"read at {self.home.now_ms}"

    def abort(self):
        self.fate = f"closed at {self.home.now_ms}"


def test_nothing_is_measured_without_a_rate():
    home = Home()
    assert {home.open().fate for _ in range(1000)} == {"read"}
    home.limits[0][BROKER] = 1.0
    assert home.open().fate == "read at 0"


def test_connections_above_the_rate_wait_in_turn():
    home = Home(broker_limit=1.0)
    opened = [home.open() for _ in range(13)]
    assert [one.fate for one in opened[:10]] == ["read at 0"] * 10
    assert [one.fate for one in opened[10:]] == ["waits"] * 3
    assert len(home.timers) == 1, "only the first of a listener has its turn"
    home.run(1_000)
    assert [one.fate for one in opened[10:]] == ["read at 1000", "waits", "waits"]
    home.run(5_000)
    assert [one.fate for one in opened[10:]] == ["read at 1000", "read at 2000", "read at 3000"]
    assert (home.counts.throttled["CONNECTION"], home.counts.throttle_ms["CONNECTION"]) == (3, 3_000)


def test_one_listener_does_not_hold_up_another():
    home = Home(listener_limits={"A": 1.0})
    waiting = [home.open() for _ in range(11)][-1]
    assert (waiting.fate, home.open(listener="B").fate) == ("waits", "read")


def test_a_connection_above_the_rate_of_its_address_is_closed_later():
    home = Home(address_limits={"10.0.0.1": 1.0})
    opened = [home.open() for _ in range(12)]
    assert [one.fate for one in opened[9:]] == ["read at 0", "waits", "waits"]
    assert home.open("10.0.0.2").fate == "read"
    home.run(1_000)
    assert [one.fate for one in opened[10:]] == ["closed at 1000"] * 2


def test_a_rate_that_is_raised_lets_those_in_that_wait():
    home = Home(broker_limit=1.0)
    opened = [home.open() for _ in range(20)]
    home.limits[0][BROKER] = 1000.0
    home.run(1_000)
    assert {one.fate for one in opened[10:]} == {"read at 1000"}
