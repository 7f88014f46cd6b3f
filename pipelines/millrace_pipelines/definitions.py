"""The code location: the definitions of `defs/`, and where their resources take their values from.

    topic (external, one partition per topic) ──> warehouse_table ──> checks: load_completeness, dead_letters, …
      │                                             └──> table_upkeep   (nightly)
      ├──> retention       (hourly)
      ├──> compaction      (hourly)
      ├──> recovery_check  (nightly) ──> check: no_findings
      └──> check: one_live_owner  (hourly): the groups that ZooKeeper coordinates

The resources name environment variables, which Dagster reads when a run or a tick starts, not when it loads this.
`consumer_groups` is for the last check, and for assets of downstream jobs, which other definitions add
(docs/downstream.md).
"""

from __future__ import annotations

import dagster as dg

from millrace_pipelines.defs.compaction.assets import compaction
from millrace_pipelines.defs.compaction.schedules import hourly_compaction
from millrace_pipelines.defs.downstream.resource import ConsumerGroupResource
from millrace_pipelines.defs.groups.checks import one_live_owner
from millrace_pipelines.defs.groups.schedules import hourly_ownership_check
from millrace_pipelines.defs.instance.jobs import hourly_pruning, prune_runs
from millrace_pipelines.defs.loads.assets import warehouse_table
from millrace_pipelines.defs.loads.checks import table_checks
from millrace_pipelines.defs.loads.history import table_history
from millrace_pipelines.defs.loads.schedules import audit, nightly_audit
from millrace_pipelines.defs.loads.sensors import load, new_records, table_lag
from millrace_pipelines.defs.recovery.assets import recovery_check
from millrace_pipelines.defs.recovery.schedules import nightly_recovery_check
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.retention.assets import retention
from millrace_pipelines.defs.retention.schedules import hourly_retention
from millrace_pipelines.defs.tables.code_links import linked
from millrace_pipelines.defs.topics.assets import topic
from millrace_pipelines.defs.topics.sensors import topics
from millrace_pipelines.defs.upkeep.assets import table_upkeep
from millrace_pipelines.defs.upkeep.schedules import nightly_table_upkeep

defs = dg.Definitions(
    assets=linked([topic, warehouse_table, retention, compaction, recovery_check, table_upkeep]),
    asset_checks=[table_checks, one_live_owner],
    jobs=[load, audit, prune_runs],
    sensors=[topics, new_records, table_lag, table_history],
    schedules=[
        hourly_retention,
        hourly_compaction,
        hourly_ownership_check,
        hourly_pruning,
        nightly_audit,
        nightly_recovery_check,
        nightly_table_upkeep,
    ],
    resources={
        "millrace": MillraceResource(
            bootstrap=dg.EnvVar("MILLRACE_BOOTSTRAP"),
            admin_url=dg.EnvVar("MILLRACE_ADMIN_URL"),
            warehouse_dir=dg.EnvVar("MILLRACE_WAREHOUSE_DIR"),
            schema_dir=dg.EnvVar("MILLRACE_SCHEMA_DIR"),
            master=dg.EnvVar("MILLRACE_SPARK_MASTER"),
        ),
        "consumer_groups": ConsumerGroupResource(
            zookeeper=dg.EnvVar("MILLRACE_ZOOKEEPER"),
            bootstrap=dg.EnvVar("MILLRACE_BOOTSTRAP"),
            output_dir=dg.EnvVar("MILLRACE_WAREHOUSE_DIR"),
        ),
    },
    # A load is another process, so that a run needs no process for each step.
    executor=dg.in_process_executor,
)
