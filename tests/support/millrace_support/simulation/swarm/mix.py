"""The mix of faults of a seed: which kinds it has, how often, and how long they last.

Where each seed has its own few kinds of faults, seeds reach states that a mix of all never does: the one that ends
others early, or undoes what others have done, is missing in many (swarm testing, Groce and others, 2012).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Self

FULL_SHARE, KIND_SHARE = 0.25, 0.5  # of the seeds that have all kinds of faults; of the others that have one kind
WEIGHTS = (1, 1, 2, 4)
LONGEST_PAUSE_S = (1.0, 2.5, 2.5, 5.0)
LONGEST_S = (4.0, 12.0, 12.0)


@dataclass(frozen=True)
class Mix:
    """What chance has decided for a seed.

    Attributes:
        weights: how often there is each kind of fault in relation to the others.
        longest_pause_s: how long there is no other fault, at most.
        longest_s: how long a fault lasts at most.
    """

    weights: Mapping[str, int]
    longest_pause_s: float
    longest_s: float

    @classmethod
    def drawn(cls, chance: Random, kinds: Iterable[str]) -> Self:
        """Returns a mix of some of the kinds, of at least one."""
        all_kinds = list(kinds)
        is_full = chance.random() < FULL_SHARE
        some = [kind for kind in all_kinds if is_full or chance.random() < KIND_SHARE]
        weights = {kind: chance.choice(WEIGHTS) for kind in some or [chance.choice(all_kinds)]}
        return cls(weights, chance.choice(LONGEST_PAUSE_S), chance.choice(LONGEST_S))

    def pick(self, chance: Random) -> str:
        """Returns the kind of the next fault."""
        return chance.choices([*self.weights], [*self.weights.values()])[0]
