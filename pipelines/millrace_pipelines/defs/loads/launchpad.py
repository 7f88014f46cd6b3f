"""What a person gives a run in the Launchpad: the options of `LoadOptions` that are one run's to choose."""

from dataclasses import replace

import dagster as dg
from pydantic import Field

from millrace_pipelines.warehouse.load.options import LoadOptions


class LoadConfig(dg.Config):
    """The options of one run of loads; they hold for every table that it loads."""

    max_records_per_run: int | None = Field(
        default=None, ge=1, description="The largest number of offsets for each table; by default as declared."
    )
    accept_lost_offsets: bool = Field(
        default=False,
        description="Go on past offsets that retention deleted before they were loaded, or that the log has lost, or "
        "holds in a damaged batch.",
    )
    accept_recreated_topic: bool = Field(
        default=False, description="Go on with a topic that was deleted and created again, in a new ledger."
    )
    accept_truncated_log: bool = Field(
        default=False, description="Go on where a log ends below, or differs from, what was loaded, in a new ledger."
    )
    accept_keyless_records: bool = Field(default=False, description="Leave records without a key out of an upsert.")
    spark: dict[str, str] = Field(default={}, description="Settings of Spark for this run.")
    dry_run: bool = Field(default=False, description="Report what would be loaded, and change nothing.")

    def applied(self, options: LoadOptions) -> LoadOptions:
        """Returns a table's options with those of the run."""
        return replace(
            options,
            max_records_per_run=self.max_records_per_run or options.max_records_per_run,
            accept_lost_offsets=self.accept_lost_offsets,
            accept_recreated_topic=self.accept_recreated_topic,
            accept_truncated_log=self.accept_truncated_log,
            accept_keyless_records=self.accept_keyless_records,
        )
