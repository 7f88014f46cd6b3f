"""Partitions that this broker leads, and the requests that wait for them."""
