"""`millrace mirror audit`: compares mirrored topics with their sources, record by record."""

from __future__ import annotations

from millrace_ops.cli.mirror_options import Source, Target


def audit(source: Source = None, target: Target = None) -> None:
    """Compare mirrored topics with their sources record by record; exit status 1 with each difference on a line."""
