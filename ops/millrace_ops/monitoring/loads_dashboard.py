"""The dashboard of loads and tables.

Continuous loads export their metrics themselves (`millrace warehouse load --continuous --metrics`), `millrace warehouse
tables --textfile` exports those of all tables below a folder, whatever loads them, and Dagster exports those of loads
that failed (`load_metrics`).
"""

from __future__ import annotations

from millrace_ops.monitoring.panels import HERE, RATE, Dashboard, Section, line, lines, quantile, rate

NEWEST = "millrace_table_last_load"

LOADS = Section(
    "Loads",
    (
        line("Records that tables lack", "none", f"sum by (topic) (millrace_load_lag_records{{{HERE}}})", "{{topic}}"),
        line("Rows", "cps", rate("millrace_load_rows_total"), "{{instance}}"),
        line("Dead letters", "cps", rate("millrace_load_dead_letters_total"), "{{instance}}"),
        line("Commits", "cps", rate("millrace_load_commits_total"), "{{instance}}"),
        lines(
            "Time of a load, half and 95 %",
            "s",
            (quantile(0.5, "millrace_load_seconds", "instance"), "half, {{instance}}"),
            (quantile(0.95, "millrace_load_seconds", "instance"), "95 %, {{instance}}"),
        ),
        line(
            "Failures, by error",
            "cps",
            f"sum by (error) ({rate('millrace_load_failures_total')}) or vector(0)",
            "{{error}}",
        ),
        line("Version of the table", "none", f"millrace_load_table_version{{{HERE}}}", "{{instance}}"),
    ),
)
TABLES = Section(
    "Tables",
    (
        line("Records that a table lacks", "none", "topk(20, millrace_table_lag_records)", "{{table}}"),
        line("Rows of a table", "none", "topk(20, millrace_table_rows)", "{{table}}"),
        line("Dead letters of a table", "none", "topk(20, millrace_table_dead_letters)", "{{table}}"),
        line("Files of a table", "none", "topk(20, millrace_table_files)", "{{table}}"),
        line(
            "Mean size of a table's files",
            "bytes",
            "bottomk(20, millrace_table_bytes / millrace_table_files)",
            "{{table}}",
        ),
    ),
)
NEWEST_LOADS = Section(
    "The newest load of each table",
    (
        line("Time that it took", "s", "topk(20, millrace_table_last_load_seconds)", "{{table}}"),
        line("Time since then", "s", "topk(20, time() - millrace_table_last_load_timestamp_seconds)", "{{table}}"),
        line(
            "Records that it turned into rows and dead letters in a second",
            "cps",
            f"bottomk(20, ({NEWEST}_rows + {NEWEST}_dead_letters) / {NEWEST}_seconds)",
            "{{table}}",
        ),
        line(
            "Loads by Dagster that failed",
            "cps",
            f"sum by (table, error) (rate(millrace_table_load_failures_total[{RATE}])) or vector(0)",
            "{{table}} {{error}}",
        ),
        line(
            "Tables whose newest load by Dagster failed",
            "none",
            "sum by (table, error) (millrace_table_load_failing) or vector(0)",
            "{{table}} {{error}}",
        ),
    ),
)
LOADS_DASHBOARD = Dashboard(
    "millrace-loads", "Millrace: loads and tables", "millrace_load_commits_total", (LOADS, TABLES, NEWEST_LOADS)
)
