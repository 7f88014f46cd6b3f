"""How large the loads, topics and projects of `dagster` are, and how often each is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DagsterEffort:
    """The sizes of one run of the benchmark.

    Attributes:
        rounds: How often a short measurement is repeated; the median is shown.
        records: The new records of a run beside a bare load, and of a load that is checked.
        many_tables: The tables that one run loads.
        many_records: The new records of each of them.
        instance_runs: The runs after which the instance is looked at.
        idle_s: The seconds between the start of the platform and the look at its memory.
        tick_topics: The topics that the sensors look at.
        tick_partitions: The partitions of each of them.
        declared: By the number of declared tables, how many seconds loading the definitions may take.
        small_table, large_table: The rows of the tables before the load that is checked.
    """

    rounds: int = 3
    records: int = 10_000
    many_tables: int = 100
    many_records: int = 1_000
    instance_runs: int = 10_000
    idle_s: float = 45.0
    tick_topics: int = 100
    tick_partitions: int = 100
    declared: tuple[tuple[int, float], ...] = ((5, 2.0), (500, 4.0))
    small_table: int = 100_000
    large_table: int = 10_000_000


FULL = DagsterEffort()
