"""What Millrace uses of Dagster beside its public interface; no other code names anything in `dagster._…`.

    ticks_and_checks   an error that shows a sentence alone; the materialization that a check belongs to
    runs               a run in a process that is forked, and who launches it
    storage            SQLite files that stay open; the tables of results and snapshots, which Dagster never empties

Any release of Dagster may change these: `pyproject.toml` has the first that was not tried, and the test of this package
names what each of them has to have. They are apart since definitions load without SQLAlchemy, half a second faster.
What it costs to do without is in docs/benchmarks.md.
"""
