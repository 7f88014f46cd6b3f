"""A Dagster partition for each topic. Offsets are never Dagster partitions: the ledger in the table holds them."""

from __future__ import annotations

import dagster as dg

TOPICS = "topics"
topics_partitions = dg.DynamicPartitionsDefinition(name=TOPICS)
