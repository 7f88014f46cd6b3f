"""What the outcomes of a step's jobs are to Dagster: materializations, observations, and at the end its failure.

A job that committed something is a materialization of its asset. One that found nothing new is an observation, which
updates nothing downstream. After all of them the step fails if a job failed, with the sentence of each that failed.

The step asks for its retries itself, and therefore has no retry policy: with one, Dagster would also retry a step that
a user has cancelled, and its error would read "Exceeded max_retries".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import dagster as dg

from millrace.errors import MillraceError
from millrace.fs import OsFileSystem
from millrace_pipelines.defs.loads.child_process import Context, Outcome
from millrace_pipelines.defs.loads.metadata import nothing_new_metadata, report_metadata
from millrace_pipelines.defs.tables.metadata import loaded_metadata
from millrace_pipelines.runs.failures import Failed, failure_of

MAX_RETRIES = 2
FIRST_PAUSE_S = 5

Event = dg.MaterializeResult[None] | dg.AssetObservation


def asset_events(context: Context, outcomes: Iterable[tuple[str, Outcome]]) -> Iterator[Event]:
    """Yields an event for each job that did not fail, as soon as it is done.

    Args:
        context: The step that runs.
        outcomes: By key, what became of each job; a key is that of its asset, as `AssetKey.to_user_string` writes it.

    Raises:
        Failure: A job failed, and either no retry helps, or none is left.
        RetryRequested: All failures of the step may pass.
    """
    failed: dict[str, Failed] = {}
    jobs = 0
    for jobs, (key, outcome) in enumerate(outcomes, 1):  # noqa: B007  their number is needed after the last
        event = _event(context, dg.AssetKey.from_user_string(key), outcome)
        if isinstance(event, Failed):
            context.log.error("%s: %s", key, event.sentence)
            failed[key] = event
        else:
            yield event
    if failed:
        raise_failures(failed, jobs, context.retry_number)


def _event(context: Context, asset_key: dg.AssetKey, outcome: Outcome) -> Event | Failed:
    """Returns the event of an outcome, or a failure, as where a job has committed but its table can't be read."""
    if isinstance(outcome, Failed):
        return outcome
    report = outcome.report
    if report.version is None:
        return dg.AssetObservation(asset_key, metadata=nothing_new_metadata(report))
    try:
        table = loaded_metadata(report.table, report.version, OsFileSystem(), topic=topic_of(context, asset_key))
    except MillraceError as error:
        return failure_of(error)
    return dg.MaterializeResult(asset_key=asset_key, metadata={**table, **report_metadata(report)})


def topic_of(context: Context, asset_key: dg.AssetKey) -> dg.AssetKey | None:
    """Returns the asset that a table is loaded from, the only one upstream of it; None where there is not just one."""
    upstream = context.assets_def.asset_deps.get(asset_key, frozenset()) if context.has_assets_def else frozenset()
    return next(iter(upstream)) if len(upstream) == 1 else None


def raise_failures(failed: Mapping[str, Failed], jobs: int, retry_number: int) -> None:
    """Fails the step, or asks for another attempt where all failures may pass and fewer than MAX_RETRIES were made.

    Args:
        failed: By key, why jobs failed.
        jobs: The number of all jobs of the step.
        retry_number: The number of retries that were made.
    """
    failure = step_failure(failed, jobs)
    if failure.allow_retries and retry_number < MAX_RETRIES:
        raise dg.RetryRequested(MAX_RETRIES, FIRST_PAUSE_S * 2**retry_number) from failure
    raise failure


def step_failure(failed: Mapping[str, Failed], jobs: int) -> dg.Failure:
    """Returns the failure of a step: the sentence of its only job, or a line for each that failed, by key."""
    lines = [one.sentence if jobs == 1 else f"{key}: {one.sentence}" for key, one in failed.items()]
    if len(failed) > 1:
        lines.insert(0, f"{len(failed)} of {jobs} failed")
    return dg.Failure(
        "\n".join(lines),
        metadata={label: value for key, one in failed.items() for label, value in _shown(key, one).items()},
        allow_retries=all(one.may_pass for one in failed.values()),
    )


def _shown(key: str, failed: Failed) -> dict[str, str]:
    goes_on = {} if failed.option is None else {f"{key}: option that goes on": f"{failed.option}: true"}
    return {f"{key}: error": failed.error} | goes_on
