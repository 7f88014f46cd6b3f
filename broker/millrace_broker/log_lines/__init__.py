"""The broker's own log: the form of its lines, what is left out of it, and how much each logger says.

What records are kept in, the logs of partitions, is in `millrace_broker.storage`.
"""
