"""This machine's disk and clock, for those who are handed none: users' programs, and tasks of Spark.

A task runs in another process, perhaps on another machine, and opens its own. Commands and Dagster's runs hand in
theirs, and tests others that fail, or that stand still.
"""

from __future__ import annotations

from millrace.clock import Clock, SystemClock
from millrace.fs import FileSystem, OsFileSystem

DISK: FileSystem = OsFileSystem()
CLOCK: Clock = SystemClock()
