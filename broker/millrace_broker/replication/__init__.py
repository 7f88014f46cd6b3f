"""Partitions that this broker leads or follows, and the requests that wait for them."""
