"""The dashboard of continuous loads (`millrace warehouse load --continuous --metrics`)."""

from __future__ import annotations

from millrace_ops.monitoring.panels import HERE, Dashboard, Panel, Section, quantile, rate

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
LOADS_DASHBOARD = Dashboard("millrace-loads", "Millrace: loads", "millrace_load_commits_total", (LOADS,))
