"""Says in words where the logs of a partition's replicas differ, for the message of a test that fails."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from millrace.records.batch import BatchHeader, walk

BATCHES_SHOWN = 2


def describe_difference(logs: Mapping[int, bytes]) -> str:
    """Returns a line for each broker: its log's size and end, and its batches from the first difference on.

    `logs` are the bytes of each broker's log, which has whole batches.
    """
    same_bytes = sum(1 for _ in itertools.takewhile(_are_equal, zip(*logs.values(), strict=False)))
    return "\n".join(f"broker {each}: {_describe(log, same_bytes)}" for each, log in sorted(logs.items()))


def _are_equal(values: tuple[int, ...]) -> bool:
    return len(set(values)) == 1


def _describe(log: bytes, same_bytes: int) -> str:
    batches = list(walk(log))
    log_end_offset = batches[-1][1].last_offset + 1 if batches else 0
    differing = [header for position, header in batches if position + header.size_bytes > same_bytes]
    shown = "; ".join(map(_describe_batch, differing[:BATCHES_SHOWN])) or "none"
    return f"{len(log)} bytes up to offset {log_end_offset}, {len(differing)} batches differ: {shown}"


def _describe_batch(header: BatchHeader) -> str:
    kind = "marker" if header.is_control else "batch"
    return (
        f"{kind} {header.base_offset} to {header.last_offset} of epoch {header.partition_leader_epoch}, "
        f"producer {header.producer_id} in epoch {header.producer_epoch}, sequence {header.base_sequence}, "
        f"CRC {header.crc:#010x}"
    )
