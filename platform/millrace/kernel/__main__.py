"""`python -m millrace.kernel` says in one line whether the compiled kernel is in use, and if not, why."""

from __future__ import annotations

from millrace.kernel import description

print(f"record kernel: {description}")  # noqa: T201  # a program's answer
