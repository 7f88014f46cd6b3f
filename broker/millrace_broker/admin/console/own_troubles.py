"""What is wrong with the broker that serves the console, in sentences that its Brokers page shows.

    health ──────────────────► the sentences of its checks
    requests and replies ────► from MEMORY_BYTES on: clients do not drain
    steps of the clock ──────► the last one, for STEP_IS_TOLD_MS

The cluster can't be asked for them, so the gateway gives them to the console's process with the request for that page:
as JSON in the header HEADER, in ASCII, at most MAX_TOLD of them and MAX_CHARACTERS of each. A page without the header
says nothing about the broker.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from millrace_broker.admin.health import Health
from millrace_broker.metrics import ClockStep

HEADER = "X-Console-Own-Troubles"
MEMORY_BYTES = 400_000_000  # as in the alert ClientsDoNotDrain
STEP_IS_TOLD_MS = 600_000  # as in the alert ClockMoved
MAX_TOLD = 16
MAX_CHARACTERS = 300
MAX_HEADER_BYTES = 1 << 16  # a character takes up to 12 bytes


def own_troubles(health: Health, memory_bytes: int, step: ClockStep | None, now_ms: int) -> list[str]:
    """Returns a sentence for each thing that is wrong with the broker; `now_ms` is monotonic time."""
    told = list(health.not_ready)
    if memory_bytes > MEMORY_BYTES:
        told.append(
            f"requests and replies take {memory_bytes // 1_000_000} MB of memory: clients do not send them to their "
            "end, or do not read them"
        )
    if step is not None and now_ms - step.at_ms < STEP_IS_TOLD_MS:
        told.append(
            f"the machine's clock was set {step.sentence_part} within the last {STEP_IS_TOLD_MS // 60_000} minutes: "
            "retention and the times of records follow it"
        )
    return told


def to_header(troubles: Sequence[str]) -> str:
    """Returns the HTTP header's value (`HEADER`): the sentences as JSON, at most MAX_TOLD, cut to MAX_CHARACTERS."""
    told = [one if len(one) <= MAX_CHARACTERS else f"{one[: MAX_CHARACTERS - 1]}…" for one in troubles[:MAX_TOLD]]
    if len(troubles) > MAX_TOLD:
        told[-1] = f"and {len(troubles) - MAX_TOLD + 1} more, which /readyz tells"
    return json.dumps(told)


def from_header(value: str | None) -> Sequence[str] | None:
    """Returns the sentences in a value that `to_header` made; None for None, where a request has no such header."""
    return None if value is None else json.loads(value)
