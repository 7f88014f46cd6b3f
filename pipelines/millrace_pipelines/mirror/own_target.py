"""A mirror whose file of settings may leave out the target: it then is the cluster of whoever runs the mirror.

A platform and the definitions of Dagster have a cluster; its address and its login need not stand in the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from millrace.errors import InvalidConfigError
from millrace_pipelines.mirror.settings import MirrorSettings
from millrace_pipelines.mirror.settings_file import TARGET, Options, read_settings

SOMEWHERE = "127.0.0.1:9092"  # in place of an address that is not known yet


def target_options(config: str, bootstrap: str, client_config: str | None) -> dict[str, Mapping[str, str]]:
    """Returns the options that name the target, none where the file does; raises InvalidConfigError."""
    try:
        has_target = TARGET in tomllib.loads(Path(config).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidConfigError(f"{config}: {getattr(error, 'strerror', None) or error}") from error
    own = {"bootstrap": bootstrap} | ({"client_config": client_config} if client_config else {})
    return {} if has_target else {TARGET: own}


def settings_into(
    config: str, bootstrap: str = SOMEWHERE, client_config: str | None = None, options: Options | None = None
) -> MirrorSettings:
    """Returns the settings of a mirror into this cluster, unless the file names another; raises InvalidConfigError."""
    return read_settings(config, {**(options or {}), **target_options(config, bootstrap, client_config)})
