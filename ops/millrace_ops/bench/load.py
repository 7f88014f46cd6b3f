"""`millrace bench load`: a topic into a table by Spark on one core, beside the Parquet writing of such rows alone.

1 KB values of random bytes, so that compression has no easy game; the raw envelope. The start of the Spark session is
not counted, the commit is. The yardstick writes rows that are already in memory as Arrow with the load's own
settings, and syncs the file: no load could be faster.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from millrace.client.cluster import Cluster
from millrace.client.sync_producer import SyncProducer
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_ops.bench.figures import Figure, alternate
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse.load import LoadOptions, load_topic

VALUE_BYTES = 1024
RECORDS = 400_000
RECORDS_PER_BATCH = 500
ROUNDS = 3
MEBIBYTE = 1 << 20
TOPIC = "load"
