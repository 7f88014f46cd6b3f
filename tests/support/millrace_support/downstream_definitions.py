"""The definitions of the pipelines, and a downstream job that waits and then fails."""

from __future__ import annotations

import dagster as dg

from millrace_pipelines import definitions as pipelines
from millrace_pipelines.defs.downstream.assets import micro_batch_asset
from millrace_support.downstream_jobs import gated

defs = dg.Definitions.merge(pipelines.defs, dg.Definitions(assets=[micro_batch_asset(gated)]))
