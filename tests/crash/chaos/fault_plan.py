"""Draws faults by a seed: the same seed draws the same faults, in the same order, whatever the brokers do.

Of three faults one is damage, at a place among the three that is drawn, too. The kinds are dealt like cards, so that
each comes before any of them comes again.
"""

import random
from typing import NamedTuple

BROKERS = (1, 2, 3)
IN_ONE_DEAL = 3  # faults, of which one is damage
PROCESS_FAULTS = ("killed", "stopped", "paused", "paused beyond the session")
RUNNING, STOPPED = "while it runs", "while it is stopped"
DAMAGE = tuple(
    f"{what} {when}" for what in ("flipped", "flipped", "truncated", "deleted") for when in (RUNNING, STOPPED)
)
WIPED = "wiped"
FILES = (
    "closed segment", "active segment", "closed segment", "offset index", "active segment", "time index",
    "closed segment", "transaction index", "snapshot", "leader epochs", "topic id", "checkpoint of the folder",
)  # fmt: skip


class Fault(NamedTuple):
    """What happens to a broker.

    Attributes:
        kind: One of PROCESS_FAULTS or DAMAGE, or WIPED.
        broker: Whom it happens to.
        files: The kind of file that is damaged; None where none is.
        ending: How the broker is restarted after damage while it ran, or stopped for damage: "killed" or "stopped".
        seed: Of what is drawn when it happens, as which bit is flipped.
    """

    kind: str
    broker: int
    files: str | None
    ending: str
    seed: int

    @property
    def is_damage(self):
        return self.kind not in PROCESS_FAULTS


def drawn(seed, kinds_of_damage):
    """Yields faults without end."""
    chance = random.Random(seed)
    process_faults, damage, files = (dealt(chance, cards) for cards in (PROCESS_FAULTS, kinds_of_damage, FILES))
    while True:
        damaged_at = chance.randrange(IN_ONE_DEAL)
        for at in range(IN_ONE_DEAL):
            kind = next(damage if at == damaged_at else process_faults)
            is_of_a_file = kind in DAMAGE
            yield Fault(
                kind, chance.choice(BROKERS), next(files) if is_of_a_file else None,
                chance.choice(("killed", "stopped")), chance.getrandbits(32),
            )  # fmt: skip


def dealt(chance, cards):
    """Yields the cards in a random order, and then again in another one, without end."""
    while True:
        yield from chance.sample(cards, len(cards))
