"""How instances share partitions, how long they pause, and what they tell."""

from collections import Counter

from millrace.errors import BrokerUnreachableError
from millrace_pipelines.mirror.pauses import Backoff, Size, Throttle
from millrace_pipelines.mirror.sharing import assign, decode_members, owner
from millrace_pipelines.mirror.telling import PATIENCE_S, Troubles

PLACES = [(f"topic-{number}", partition) for number in range(30) for partition in range(10)]


def test_all_members_agree_and_have_about_the_same():
    members = ["a", "b", "c"]
    owners = Counter(owner(members, *place) for place in PLACES)
    assert owners == Counter(owner(reversed(members), *place) for place in PLACES)
    assert min(owners[one] for one in members) > len(PLACES) / 5


def test_a_member_that_leaves_moves_its_own_alone():
    before = {place: owner(["a", "b", "c"], *place) for place in PLACES}
    after = {place: owner(["a", "c"], *place) for place in PLACES}
    assert {place for place in PLACES if before[place] != after[place]} == {
        place for place in PLACES if before[place] == "b"
    }


def test_each_member_gets_to_know_all():
    assert {one: decode_members(told) for one, told in assign({"b": b"", "a": b""}).items()} == {
        "a": ("a", "b"),
        "b": ("a", "b"),
    }
    assert decode_members(b"") == ()


def test_a_pause_doubles_and_a_success_makes_it_short_again():
    pause = Backoff()
    assert pause.is_over(0)
    for now_s, length_s in ((0, 0.1), (10, 0.2), (20, 0.4)):
        pause.failed(now_s)
        assert not pause.is_over(now_s + length_s * 0.9)
        assert pause.is_over(now_s + length_s)
    for _ in range(20):
        pause.failed(100)
    assert pause.is_over(110)
    pause.succeeded()
    pause.failed(200)
    assert pause.is_over(200.1)


def test_a_throttle_lets_so_many_bytes_pass_in_a_second():
    throttle, now_s, passed = Throttle(1000), 0.0, 0
    while now_s < 60:
        throttle.took(700, now_s)
        passed += 700
        now_s += throttle.pause_s(now_s)
        now_s += 0.01
    assert 58_000 < passed < 63_000
    assert Throttle(0).pause_s(0) == 0


def test_what_is_too_slow_is_sent_in_smaller_pieces():
    size = Size(1_000_000, smallest=300_000)
    for expected in (500_000, 300_000, 300_000):
        size.was_too_large()
        assert size.now == expected
    for expected in (600_000, 1_000_000, 1_000_000):
        size.was_sent()
        assert size.now == expected
    tiny = Size(10)
    tiny.was_too_large()
    assert tiny.now == 10


class Clock:
    at_s = 0.0

    def monotonic_s(self):
        return self.at_s


def test_a_trouble_that_lasts_is_told_once_and_so_is_its_end():
    told, clock, error = [], Clock(), BrokerUnreachableError("nobody answers")
    troubles = Troubles(told.append, clock)
    troubles.fails("source east", error)
    troubles.works("source east")
    assert told == []
    for _ in range(3):
        troubles.fails("source east", error)
        clock.at_s += PATIENCE_S
    assert told == ["source east: nobody answers; it is tried again until it succeeds"]
    troubles.works("source east")
    troubles.works("source east")
    assert told[1:] == ["source east: it works again"]
