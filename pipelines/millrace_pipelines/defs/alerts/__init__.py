"""Alerts: a webhook hears of runs and checks that fail, and of checks that pass again.

events    what the instance has stored since the last look: checks that were made, runs that ended
news      which of it is told, and when it was told before
webhook   the request that tells it
sensor    looks, tells, and remembers how far it came

A cluster has them where `webhook` or MILLRACE_WEBHOOK names an address (docs/dagster.md).
"""
