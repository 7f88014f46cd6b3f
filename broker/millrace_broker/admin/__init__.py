"""What operators and Dagster ask of the broker: health, metrics, maintenance, and the periodic chores.

`service` serves the HTTP `endpoint` (docs/health.md, docs/metrics.md).
"""
