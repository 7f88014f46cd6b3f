"""The state that a run's definitions are made of: that of the code server from which the run was requested.

    code server    state file ──► definitions
                        └──► what Dagster keeps with a run ──► its worker, on any machine: the same definitions

So a worker needs no state file, nor a disk that it shares with the code server, and a topic that comes or goes between
the request and the worker's start changes nothing for the run. Where definitions are made for no run, the file counts.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from millrace_pipelines.dagster_internals import DefinitionsLoadContext, DefinitionsLoadType


@contextmanager
def state_of_run(key: str, file: Path | None) -> Iterator[Path | None]:
    """Yields the path of the state that the present load of definitions is to use, and hands it to the runs to come.

    Args:
        key: The name of the state among those of all components.
        file: The state file of this machine; None where there is none.
    """
    load = DefinitionsLoadContext.get()
    name = f"millrace-state-[{key}]"
    is_of_run = load.load_type is DefinitionsLoadType.RECONSTRUCTION
    packed = (load.reconstruction_metadata.get(name) if is_of_run else None) or _packed(file)
    load.add_to_pending_reconstruction_metadata(name, packed)
    with TemporaryDirectory() as folder:
        path = Path(folder, "state")
        path.write_bytes(zlib.decompress(base64.b64decode(packed)))
        yield path


def _packed(file: Path | None) -> str:
    content = b"" if file is None else file.read_bytes()
    return base64.b64encode(zlib.compress(content)).decode()
