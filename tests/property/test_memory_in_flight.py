"""Memory in flight stays bounded, and there is always someone who may go on."""

from hypothesis import given
from hypothesis import strategies as st

from millrace_broker.net.memory import MemoryInFlight

LIMIT = 100
LARGEST_FRAME = 80


class Peer:
    """A connection that sends one frame after the other, some bytes at a time."""

    def __init__(self, memory, frames):
        self.memory = memory
        self.frames = list(frames)
        self.held = 0
        self.is_paused = False
        self.is_reading, self.last_active = True, 0.0

    def memory_is_free(self):
        self.is_paused = False

    def step(self, growth):
        """Receive some more of the frame, or end it."""
        if self.held >= self.frames[0]:
            self.frames.pop(0)
            self.held = 0
        elif self.memory.may_grow(self, growth := min(growth, self.frames[0] - self.held)):
            self.held += growth
        else:
            self.is_paused = True
            return
        self.memory.hold(self, self.held)


@given(
    st.lists(st.lists(st.integers(1, LARGEST_FRAME), max_size=4), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30), st.booleans()), max_size=300),
)
def test_every_frame_gets_through_and_four_times_the_limit_is_passed_by_one_frame_only(frames, steps):
    memory = MemoryInFlight(LIMIT, lambda: None, "a test")
    peers = [Peer(memory, each) for each in frames]

    def step(peer, growth):
        peer.step(growth)
        assert memory.used_bytes == sum(each.held for each in peers)
        assert memory.used_bytes <= 4 * LIMIT + LARGEST_FRAME

    for index, growth, leaves in steps:
        peer = peers[index % len(peers)]
        if leaves and len(peers) > 1:
            peers.remove(peer)
            memory.forget(peer)
        elif peer.frames and not peer.is_paused:
            step(peer, growth)
    while any(peer.frames for peer in peers):
        ready = [peer for peer in peers if peer.frames and not peer.is_paused]
        assert ready, "all wait, and no one will wake them"
        for peer in ready:
            if not peer.is_paused:
                step(peer, 7)
    assert memory.used_bytes == 0


def test_memory_that_is_kept_for_later_is_taken_back_first():
    kept = Peer(memory := MemoryInFlight(LIMIT, lambda: memory.hold(kept, 0), "a test"), [])
    memory.hold(kept, LIMIT)
    assert memory.is_short
    grower = Peer(memory, [50])
    assert memory.may_grow(grower, 50)
    assert memory.used_bytes == 0


def test_who_holds_little_may_go_on_while_others_wait_for_much():
    memory = MemoryInFlight(LIMIT, lambda: None, "a test")
    greedy = [Peer(memory, [500]) for _ in range(3)]
    for peer in greedy:
        for _ in range(60):
            peer.step(5)
    assert [peer.is_paused for peer in greedy] == [False, True, True]
    honest = Peer(memory, [10])
    while honest.frames and not honest.is_paused:
        honest.step(5)
    assert honest.frames == []


@given(
    st.lists(st.tuples(st.integers(0, 30), st.booleans(), st.floats(0, 20)), max_size=8),
    st.booleans(),
    st.floats(0, 20),
)
def test_only_who_holds_memory_and_sends_nothing_is_stalled_and_only_while_others_wait(peers, somebody_waits, since_s):
    memory = MemoryInFlight(LIMIT, lambda: None, "a test")
    expected = []
    for held, is_reading, last_active in peers:
        peer = Peer(memory, [])
        peer.is_reading, peer.last_active = is_reading, last_active
        memory.hold(peer, held)
        if held and is_reading and last_active < since_s and somebody_waits:
            expected.append(peer)
    if somebody_waits:
        refused = [memory.may_grow(Peer(memory, []), 5 * LIMIT) for _ in range(2)]
        assert refused == [True, False]  # one at a time may go on
    assert memory.stalled(since_s) == expected
