"""Faults of connections: between brokers, and with ZooKeeper."""

from __future__ import annotations

from millrace_support.simulation.faults.breaker import Breaker, Faults

FAULTS = Faults()


@FAULTS.add
async def cut(breaker: Breaker) -> None:
    """Cuts two brokers off from each other."""
    one, other = breaker.chance.sample(sorted(breaker.brokers), 2)
    await _cut_off(breaker, [(one, other)])


@FAULTS.add
async def isolate(breaker: Breaker) -> None:
    """Cuts a broker off from all others."""
    one = breaker.chance.choice(sorted(breaker.brokers))
    await _cut_off(breaker, [(one, other) for other in breaker.brokers if other != one])


async def _cut_off(breaker: Breaker, pairs: list[tuple[int, int]]) -> None:
    breaker.note(f"cut off: {pairs}")
    for pair in pairs:
        breaker.network.cut(*pair)
    if await breaker.lasts():
        breaker.note(f"connected again: {pairs}")
        for pair in pairs:
            breaker.network.heal(*pair)


@FAULTS.add
async def lose_zookeeper(breaker: Breaker) -> None:
    """Cuts a broker off from ZooKeeper."""
    broker = breaker.one()
    if broker is None:
        return
    session = broker.session
    breaker.note(f"broker {broker.id} loses ZooKeeper")
    broker.lose_zookeeper()
    if await breaker.lasts():
        breaker.note(f"broker {broker.id} has ZooKeeper again")
        broker.reconnect(session)


@FAULTS.add
async def break_connection(breaker: Breaker) -> None:
    """Breaks a connection."""
    breaker.note("a connection breaks")
    breaker.network.break_one()
