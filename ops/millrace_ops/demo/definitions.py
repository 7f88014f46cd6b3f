"""The demo's code location: that of the pipelines, and the downstream job that keeps the carriers' delays."""

from __future__ import annotations

import dagster as dg

from millrace_ops.demo.carrier_delays import carrier_delays
from millrace_pipelines import definitions as pipelines  # the module: Dagster takes one Definitions of each module
from millrace_pipelines.defs.downstream.assets import micro_batch_asset
from millrace_pipelines.defs.topics.assets import topic

WORKERS = 2

defs = dg.Definitions.merge(
    pipelines.defs, dg.Definitions(assets=[micro_batch_asset(carrier_delays, workers=WORKERS, deps=[topic])])
)
