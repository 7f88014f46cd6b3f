"""The token of the admin endpoint: that of the property `admin.token`, or one that the broker makes and keeps.

    DIR/admin.token     one line, in the first data directory, which its owner alone can read (mode 600)

`admin.token.file` names another file. The broker makes it at its first start; a crash leaves all of it or nothing.
Where it can't be kept, as on a full disk, the token is good until the broker stops, and nobody learns it.
"""

from __future__ import annotations

import logging
import os
import secrets

from millrace.errors import InvalidConfigError
from millrace.fs import FileSystem, read_file, write_file_durably

logger = logging.getLogger(__name__)

TOKEN_FILE = "admin.token"  # noqa: S105 -- the name of the file
TOKEN_BYTES = 24


def token_file(named: str, data_dir: str) -> str:
    """Returns the path of the file: the one that `admin.token.file` names, or that of the first data directory."""
    return named or os.path.join(data_dir, TOKEN_FILE)


def kept_token(fs: FileSystem, path: str) -> str:
    """Returns the token that a file has, after making it if it is not there.

    Raises:
        InvalidConfigError: The file has no token, or can't be read.
    """
    try:
        token = read_file(fs, path).decode().strip()
    except FileNotFoundError:
        return _made(fs, path)
    except (OSError, ValueError) as error:
        raise InvalidConfigError(f"the token of the admin endpoint can't be read from {path}: {error}") from error
    if not token or not token.isprintable():
        raise InvalidConfigError(f"{path} has no token of the admin endpoint: remove the file, and a new one is made")
    return token


def _made(fs: FileSystem, path: str) -> str:
    token = secrets.token_urlsafe(TOKEN_BYTES)
    try:
        fs.mkdir(os.path.dirname(path) or ".")
        write_file_durably(fs, path, f"{token}\n".encode(), is_secret=True)
    except OSError as error:  # what is on a full disk is served all the same
        logger.warning("%s is not written, so nobody can change anything by the admin endpoint: %s", path, error)
    return token
