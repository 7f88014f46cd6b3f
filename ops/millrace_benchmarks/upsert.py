"""`millrace bench upsert`: a million changed keys in a table of 10 million and of 100 million, and what they take.

Keys are random, or the newest. The table has deletion vectors; in the small one files are written again, too. The
yardstick is the same upsert into the small table: what a change costs is not to grow with the table. Each upsert is a
process of its own, with one or two tasks at once, whose memory counts for driver and tasks together. Processor seconds
stand beside seconds, for these depend on what else the machine does. It needs 10 GB of disk.

With `--store`, a table of 5 million keys in the store has its turns beside one in a folder (`in_store`). Where the
store is a process of this machine, too, the rate by the upsert's own processor time tells what the client costs.
"""

from __future__ import annotations

from pathlib import Path

from millrace_benchmarks.harness import Figure, Samples, beside_goal, interleave
from millrace_benchmarks.in_store import AT_LEAST, ROUNDS, below, read_alone, write_alone
from millrace_benchmarks.upsert_tables import CHANGES, Keys, Upserted, changes_in
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.rewrite import current_files
from millrace_pipelines.warehouse.table.files import index_name

SMALL = 10_000_000
LARGE = 100_000_000
IN_STORE = 5_000_000
MOST_TIMES = 3.0
MOST_MEBIBYTES = 2048
CASES: tuple[Keys, ...] = ("random", "recent")
MILLION = 1_000_000


def run(place: Path, small: int = SMALL, large: int = LARGE) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    table = Upserted.made(place / "small", small, by_vectors=True)
    ones = {case: table.measure(case, 2) for case in CASES}
    again = Upserted.made(place / "again", small, by_vectors=False).measure("random", 2)
    table = Upserted.made(place / "large", large, by_vectors=True)
    many = {case: table.measure(case, 2) for case in CASES}
    alone = table.measure("random", 1)
    size = f"{large // MILLION} M rows"
    return [
        *(figure for case in CASES for figure in _beside(case, many[case], ones[case], size, small)),
        _figure(f"{CHANGES // MILLION} M random keys, {small // MILLION} M rows, files again", again, ones["random"]),
        Figure(name=f"1 M random keys, {size}, 1 task", value=alone["seconds"], unit="s", yardstick="2 tasks",
               yardstick_value=many["random"]["seconds"]),
        beside_goal("memory of driver and tasks", max(one["mebibytes"] for one in (*many.values(), alone)), "MiB",
                    MOST_MEBIBYTES),
    ]  # fmt: skip


def _beside(case: Keys, many: Samples, one: Samples, size: str, small: int) -> list[Figure]:
    yardstick = f"{small // MILLION} M rows"
    return [
        Figure(
            name=f"{CHANGES // MILLION} M {case} keys, {size}" if key == "seconds" else "· the same, processor",
            value=many[key], unit="s", yardstick=yardstick, yardstick_value=one[key], at_most=MOST_TIMES,
        )
        for key in ("seconds", "processor")
    ]  # fmt: skip


def _figure(name: str, value: Samples, yardstick: Samples) -> Figure:
    return Figure(
        name=name, value=value["seconds"], unit="s", yardstick="by vectors", yardstick_value=yardstick["seconds"]
    )


def run_in(place: Path, store: str, keys: int = IN_STORE) -> list[Figure]:
    """Measures upserts of random keys in a store, an address, beside those in a folder."""
    with below(store) as there:
        return [figure for by_vectors in (True, False) for figure in _in_store(place, store, there, keys, by_vectors)]


def _in_store(place: Path, store: str, there: str, keys: int, by_vectors: bool) -> list[Figure]:
    form = "by vectors" if by_vectors else "files again"
    tables = [Upserted.made(f"{home}/{form.replace(' ', '-')}", keys, by_vectors=by_vectors) for home in (there, place)]
    first = current_files(load_table(tables[0].location, DISK))
    names = [name for file in first for name in (file.name, index_name(file.name))]

    def alone() -> float:
        if by_vectors:
            return read_alone(tables[0].location, names)
        return write_alone(f"{there}/alone", [file.size_bytes for file in first])

    changes = changes_in(keys)
    in_store, in_folder, by_itself = interleave(
        ROUNDS,
        lambda: tables[0].measure("random", 2),
        lambda: tables[1].measure("random", 2),
        lambda: {"seconds": alone()},
    )
    return [
        *(
            Figure(
                name=name, value=changes / in_store[key], unit=unit,
                yardstick="a folder", yardstick_value=changes / in_folder[key], at_least=AT_LEAST,
            )
            for key, unit, name in (
                ("seconds", "keys/s", f"{changes:,} random keys, {form}, in {store}"),
                ("processor", "keys/s", "· in a second of the upsert's own processor time"),
            )
        ),
        Figure(
            name=f"· the table's files, {'read' if by_vectors else 'written'} alone",
            value=changes / by_itself["seconds"], unit="keys/s",
        ),
    ]  # fmt: skip
