"""Who appends to a log as its leader, which decides how the batch's producer is checked (Kafka's AppendOrigin).

| origin | a batch with a producer |
|---|---|
| CLIENT | its sequence and epoch must follow on what the log has of the producer; no control batches |
| COORDINATOR | its epoch counts alone; a control batch is a marker, and ends the producer's transaction |

What is fetched from a leader is appended by another way, as it is (`Log.append_as_follower`).
"""

from __future__ import annotations

from enum import Enum


class AppendOrigin(Enum):
    """Who appends as leader."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
