"""`millrace warehouse pack`: makes the archive that brings Python and Millrace to Spark's executors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

FOLDER = "millrace"


def pack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The archive, whose name ends with .tar.gz.")],
) -> None:
    """Pack this Python with Millrace and what its tasks import, for Spark's executors on machines that lack them.

    Executors need the same processor and a C library as new as this machine's.
    """
    from millrace_pipelines.spark.archive import pack_environment

    packed = pack_environment(file)
    print(
        f"{file}: {packed.size_bytes / 2**20:,.0f} MiB, Python {packed.python} with {packed.packages} packages\n"
        f"millrace warehouse load … --conf spark.archives={file.absolute()}#{FOLDER} "
        f"--conf spark.pyspark.python=./{FOLDER}/bin/python"
    )
