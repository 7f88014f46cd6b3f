"""The errors that stop a downstream job, beside those of a topic that is read (`millrace_pipelines.spark.errors`).

WarehouseError
├── JobError                  the job can't be found or used, or its function failed; nothing of the batch is committed
└── WorkersFailedError        the workers ended before the output had all records; what is committed stays
"""

from __future__ import annotations

from millrace.errors import WarehouseError


class JobError(WarehouseError):
    """A job can't be found or used, or its function failed on a batch, of which nothing is committed."""


class WorkersFailedError(WarehouseError, retriable=True):
    """Workers ended before the output had what it was to have; another run goes on from the output's offsets."""
