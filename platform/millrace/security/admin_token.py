"""The token by which programs change something at the brokers' admin endpoints, as the environment gives it.

MILLRACE_ADMIN_TOKEN         the token: the value of the property admin.token
MILLRACE_ADMIN_TOKEN_FILE    the file that has it: admin.token in the broker's first data directory
"""

from __future__ import annotations

from collections.abc import Mapping

from millrace.errors import InvalidConfigError

TOKEN = "MILLRACE_ADMIN_TOKEN"  # noqa: S105 -- the name of the variable
TOKEN_FILE = "MILLRACE_ADMIN_TOKEN_FILE"  # noqa: S105 -- the name of the variable
WAY_ON = (
    f"{TOKEN} must be what the broker's property admin.token says, or {TOKEN_FILE} the file admin.token in the first "
    "data directory"
)


def admin_token(environment: Mapping[str, str]) -> str:
    """Returns the token that the environment gives, "" where it gives none; a file is read each time.

    Raises:
        InvalidConfigError: The file can't be read.
    """
    token = environment.get(TOKEN, "").strip()
    path = environment.get(TOKEN_FILE, "").strip()
    if token or not path:
        return token
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, ValueError) as error:
        raise InvalidConfigError(f"{TOKEN_FILE}={path}: {error}") from error
