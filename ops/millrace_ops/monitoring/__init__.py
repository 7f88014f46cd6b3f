"""Dashboards for Grafana and alert rules for Prometheus, which `millrace monitoring` writes (docs/runbook.md).

dashboards.toml (panels and their queries) → grafana (the JSON that Grafana imports)
alerts.yml (the rules as they are)
"""
