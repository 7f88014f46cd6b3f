"""Faults of brokers' clocks: the time of day jumps, forwards and back, and the monotonic time goes on.

Clocks differ by less than the day for which a broker remembers an idempotent producer (`producer.id.expiration.ms`),
and the week for which it keeps offsets: what is forgotten by then is gone in a real cluster, too.
"""

from __future__ import annotations

from millrace_support.simulation.faults.breaker import Breaker, Faults

FAULTS = Faults()
SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
FURTHEST_MS = (3 * SECOND_MS, MINUTE_MS, 30 * MINUTE_MS, 11 * HOUR_MS)


@FAULTS.add
async def set_clock(breaker: Breaker) -> None:
    """Sets the clock of a broker, which may be down; it stays so, or is right again after a while."""
    broker = breaker.chance.choice(list(breaker.brokers.values()))
    furthest_ms = breaker.chance.choice(FURTHEST_MS)
    broker.clock.ahead_ms = breaker.chance.randint(-furthest_ms, furthest_ms)
    breaker.note(f"the clock of broker {broker.id} is {broker.clock.ahead_ms / SECOND_MS:.0f} s ahead")
    breaker.simulation.latest.ahead_ms = max(breaker.simulation.latest.ahead_ms, broker.clock.ahead_ms)
    if await breaker.lasts() and breaker.chance.random() < 0.5:
        breaker.note(f"the clock of broker {broker.id} is right")
        broker.clock.ahead_ms = 0
