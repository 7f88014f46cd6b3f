"""The fault of two releases: a broker ends, in order or not, and starts again with the other release on its disk."""

from __future__ import annotations

from millrace_support.simulation.faults.breaker import Breaker, Faults
from millrace_support.simulation.releases.releases import change_release, is_former

FAULTS = Faults()
KILLED_SHARE = 0.3


@FAULTS.add
async def upgrade(breaker: Breaker) -> None:
    """Gives a broker the other release: this one in place of the former one, or the former one again."""
    broker = breaker.one()
    if broker is None:
        return
    release = "this" if is_former(broker) else "the former"
    is_killed = breaker.chance.random() < KILLED_SHARE
    breaker.note(f"broker {broker.id} {'is killed' if is_killed else 'shuts down'} and gets {release} release")
    if is_killed:
        broker.die()
    else:
        await broker.shut_down()
    if not broker.is_running:
        change_release(broker)
        await breaker.starts_again(broker)
