"""The record kernel: decoding and encoding of many records at once in C, where the package was built with a compiler.

`native` is the compiled module, or None: then what uses it takes its Python path, which gives the same results, and
`description` says why. Nothing but speed depends on it. `MILLRACE_NO_KERNEL=1` in the environment leaves it out.

    batches.c        record bytes of v2 batches → records      ┐
    messages.c       message sets of v0 and v1 → records       │
    record_check.c   whether bytes are the records of a batch  │
    valid_batch.c    whether a leader has nothing to object to  │
    request_header.c  the header of a request                  ├ know no Python
    columns.c        records → buffers of Arrow columns        │
    json_text.c      the grammar of plain JSON                 │
    json_types.c     values of JSON → values of columns        │
    json_columns.c   plain objects → buffers of Arrow columns  ┘
    json_objects.c   these as Python objects
    record_check_object.c  that for Python
    crc32c.c         CRC-32C, on processors that multiply 64 bytes at a time without carries
    objects.c        record bytes of v2 batches ↔ tuples of Python
    pymemory.c       buffers as Python objects
    module.c         arguments in, buffers out, the interpreter's lock released in between
    build.py         compiles them
"""

from __future__ import annotations

import importlib
import os

VERSION = 7
NO_KERNEL = "MILLRACE_NO_KERNEL"


def reason_against() -> str | None:
    """Returns why the compiled record kernel (C code) is not used; None if it is used."""
    if os.environ.get(NO_KERNEL):
        return f"{NO_KERNEL} is set"
    try:
        version = getattr(importlib.import_module("millrace.kernel._native"), "VERSION", 0)
    except ModuleNotFoundError:
        return "the package was built without it"
    except ImportError as error:
        return str(error)
    return None if version == VERSION else f"the kernel compiled is of version {version}, not {VERSION}"


_reason = reason_against()
if _reason is None:
    from millrace.kernel import _native as native

    description = "compiled, with a CRC-32C for this processor" if hasattr(native, "crc32c") else "compiled"
else:
    native = None  # type: ignore[assignment]  # a module or nothing
    description = f"Python's, as {_reason}"
