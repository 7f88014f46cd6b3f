"""Millrace's shared core: records, wire protocol, clients, ZooKeeper, configuration."""

__version__ = "0.1.0"
