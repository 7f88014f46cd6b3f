"""Dry runs of loads and reloads: an observation of each table, with what a run would do, and no change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import dagster as dg

from millrace.errors import MillraceError
from millrace.fs import FileSystem
from millrace_pipelines.defs.loads.child_process import Context
from millrace_pipelines.defs.loads.events import step_failure
from millrace_pipelines.defs.maintenance import report_table
from millrace_pipelines.runs.failures import Failed, failure_of
from millrace_pipelines.runs.jobs import LoadJob, ReloadJob
from millrace_pipelines.warehouse.load.report import LoadPreview, ReloadPreview

PREVIEW = "a dry run: nothing was changed"


def load_previews(
    context: Context, jobs: Sequence[LoadJob | ReloadJob], fs: FileSystem
) -> Iterator[dg.AssetObservation]:
    """Yields what each job would do now; at the end raises dg.Failure with the sentences of those that would fail."""
    failed: dict[str, Failed] = {}
    for job in jobs:
        try:
            metadata = _preview(job, fs)
        except MillraceError as error:
            failed[job.key] = failure_of(error)
            context.log.error("%s: %s", job.key, failed[job.key].sentence)  # noqa: TRY400 -- the sentence says all
        else:
            yield dg.AssetObservation(dg.AssetKey.from_user_string(job.key), description=PREVIEW, metadata=metadata)
    if failed:
        raise step_failure(failed, len(jobs))


def _preview(job: LoadJob | ReloadJob, fs: FileSystem) -> dict[str, dg.RawMetadataValue]:
    from millrace_pipelines.warehouse.load.preview import preview_load, preview_reload  # noqa: PLC0415  with PySpark

    if isinstance(job, LoadJob):
        return _of_load(preview_load(job.options, fs=fs))
    return _of_reload(preview_reload(job.options, job.selection, fs=fs))


def _of_load(preview: LoadPreview) -> dict[str, dg.RawMetadataValue]:
    return {
        "offsets to load": preview.offsets,
        "ranges to load": report_table([span._asdict() for span in preview.ranges]),
        "lost offsets": report_table([span._asdict() for span in preview.lost]),
        "lag afterwards": sum(preview.lag.values()),
        "new ledger": preview.new_ledger or "none",
    }


def _of_reload(preview: ReloadPreview) -> dict[str, dg.RawMetadataValue]:
    return {
        "offsets to reload": preview.offsets,
        "ranges to replace": report_table([span._asdict() for span in preview.replaced]),
        "ranges to backfill": report_table([span._asdict() for span in preview.backfilled]),
        "lost offsets": report_table([span._asdict() for span in preview.lost]),
        "rows to remove": preview.removed_rows,
    }
