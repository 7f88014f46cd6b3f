"""The broker's own log: the form of its lines, what is left out of it, and how much each logger says.

The logs of partitions, which keep records, are in `millrace_broker.storage`.
"""
