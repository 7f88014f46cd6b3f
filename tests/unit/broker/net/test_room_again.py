"""A connection whose socket has room again writes in the loop's next turn, not within the write that made the room.

There asyncio's transport goes on after a write that fails as if it had not, and ends the connection twice.
"""

import asyncio

from millrace_broker.net.connection import Connection


class Outgoing:
    """Notes what is asked of it."""

    def __init__(self):
        self.is_paused, self.resumed = True, 0

    def resume(self):
        self.resumed += 1


def test_nothing_is_written_while_the_transport_says_that_it_has_room(monkeypatch):
    monkeypatch.setattr(Connection, "_work_off_backlog", lambda _: None)
    connection = Connection.__new__(Connection)
    connection._outgoing = outgoing = Outgoing()
    connection._now_s = lambda: 7.0

    async def play():
        connection.resume_writing()
        assert (outgoing.is_paused, outgoing.resumed, connection.last_active) == (False, 0, 7.0)
        await asyncio.sleep(0)
        assert outgoing.resumed == 1

    asyncio.run(play())
