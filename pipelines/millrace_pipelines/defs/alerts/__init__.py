"""Alerts: a webhook is notified of runs and checks that fail, and of checks that pass again.

events    reads the checks that were made, and the runs that ended, since the sensor's last tick
news      decides which of these events are reported, by what was reported before
webhook   the request that reports one event
sensor    reads and reports the events, and keeps in its cursor how far it came

A cluster has them where `webhook` or MILLRACE_WEBHOOK names an address (docs/dagster.md).
"""
