"""The asset of the carriers' delays, which a downstream job keeps up to date from the topic of flights."""

from millrace_ops.demo.carrier_delays import carrier_delays
from millrace_pipelines.defs.downstream import micro_batch_asset

WORKERS = 2

delays = micro_batch_asset(carrier_delays, workers=WORKERS)
