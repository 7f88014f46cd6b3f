"""The dashboard of loads and tables.

Continuous loads export their metrics themselves (`millrace warehouse load --continuous --metrics`), `millrace warehouse
tables --textfile` exports those of all tables below a folder, whatever loads them, and Dagster exports those of loads
that failed (`load_metrics`).
"""

from __future__ import annotations

from millrace_ops.monitoring.panels import HERE, RATE, Dashboard, Panel, Section, quantile, rate

NEWEST = "millrace_table_last_load"

LOADS = Section(
    "Loads",
    (
        Panel(
            "Records that tables lack",
            "none",
            ((f"sum by (topic) (millrace_load_lag_records{{{HERE}}})", "{{topic}}"),),
        ),
        Panel("Rows", "cps", ((rate("millrace_load_rows_total"), "{{instance}}"),)),
        Panel("Dead letters", "cps", ((rate("millrace_load_dead_letters_total"), "{{instance}}"),)),
        Panel("Commits", "cps", ((rate("millrace_load_commits_total"), "{{instance}}"),)),
        Panel(
            "Time of a load, half and 95 %",
            "s",
            (
                (quantile(0.5, "millrace_load_seconds", "instance"), "half, {{instance}}"),
                (quantile(0.95, "millrace_load_seconds", "instance"), "95 %, {{instance}}"),
            ),
        ),
        Panel(
            "Failures, by error",
            "cps",
            ((f"sum by (error) ({rate('millrace_load_failures_total')}) or vector(0)", "{{error}}"),),
        ),
        Panel("Version of the table", "none", ((f"millrace_load_table_version{{{HERE}}}", "{{instance}}"),)),
    ),
)
TABLES = Section(
    "Tables",
    (
        Panel("Records that a table lacks", "none", (("topk(20, millrace_table_lag_records)", "{{table}}"),)),
        Panel("Rows of a table", "none", (("topk(20, millrace_table_rows)", "{{table}}"),)),
        Panel("Dead letters of a table", "none", (("topk(20, millrace_table_dead_letters)", "{{table}}"),)),
        Panel("Files of a table", "none", (("topk(20, millrace_table_files)", "{{table}}"),)),
        Panel(
            "Mean size of a table's files",
            "bytes",
            (("bottomk(20, millrace_table_bytes / millrace_table_files)", "{{table}}"),),
        ),
    ),
)
NEWEST_LOADS = Section(
    "The newest load of each table",
    (
        Panel("Time that it took", "s", (("topk(20, millrace_table_last_load_seconds)", "{{table}}"),)),
        Panel(
            "Time since then", "s", (("topk(20, time() - millrace_table_last_load_timestamp_seconds)", "{{table}}"),)
        ),
        Panel(
            "Records that it turned into rows and dead letters in a second",
            "cps",
            (
                (
                    f"bottomk(20, ({NEWEST}_rows + {NEWEST}_dead_letters) / {NEWEST}_seconds)",
                    "{{table}}",
                ),
            ),
        ),
        Panel(
            "Loads by Dagster that failed",
            "cps",
            (
                (
                    f"sum by (table, error) (rate(millrace_table_load_failures_total[{RATE}])) or vector(0)",
                    "{{table}} {{error}}",
                ),
            ),
        ),
        Panel(
            "Tables whose newest load by Dagster failed",
            "none",
            (("sum by (table, error) (millrace_table_load_failing) or vector(0)", "{{table}} {{error}}"),),
        ),
    ),
)
LOADS_DASHBOARD = Dashboard(
    "millrace-loads", "Millrace: loads and tables", "millrace_load_commits_total", (LOADS, TABLES, NEWEST_LOADS)
)
