"""What becomes of a damaged range that was filled from other replicas, with the batch behind it or without.

No CRC covers a base offset, so the batch right behind damage is fetched again with it (`Log.healing`):

    the damaged segment    … ] damage      [ batch behind ][ …
                               10 … 19       20 … 29
    the wider range            10 ……………………………… 29

| filled up to | the new segment | what ends there |
|---|---|---|
| before the damage's end | | the damage, the rest of which stays |
| the damage's end, and there is no batch behind | | the damage |
| the damage's end | is full | the wider range: what it lacks becomes a hole behind the segment |
| the damage's end | has room, and the batch behind must be confirmed | nothing: the segment stays as it is |
| the damage's end | has room | the damage; the batch behind stays as it was |
| behind that | | the wider range |

A leader does not wait for another replica's word on the batch behind where damage hides offsets: followers can't fetch
past it, and may lack what is behind.
"""

from __future__ import annotations

from millrace_broker.storage import DamagedRange


def ended_range(
    damaged: DamagedRange, wider: DamagedRange, filled_to: int, *, is_full: bool, is_follower: bool
) -> DamagedRange | None:
    """Returns which of two ranges ends where the filling has ended; None where the segment stays as it is.

    `wider` is the damage with the batch behind it, or the damage itself where there is none.
    """
    if filled_to > damaged.end_offset:
        return wider
    if filled_to < damaged.end_offset or wider == damaged:
        return damaged
    if is_full:
        return wider
    must_confirm = is_follower or damaged.start_offset == damaged.end_offset
    return None if must_confirm else damaged
