"""Keeps the definitions up to the cluster's topics: their state is written, and the code location is loaded again.

    look ─► new topics, or topics that two looks in a row lack ─► state (declaration.state) ─► reload by the webserver
                             another environment ───────────────►

Where no webserver is named (MILLRACE_DAGSTER_URL), the state is written, and the tick says that a reload is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from millrace.errors import PlatformError
from millrace_pipelines.declaration.state import Environment, State, read_state, write_state
from millrace_pipelines.http import post_json

RELOAD_TIMEOUT_S = 120.0
RELOAD = """
mutation Reload($name: String!) {
  reloadRepositoryLocation(repositoryLocationName: $name) {
    __typename
    ... on WorkspaceLocationEntry { locationOrLoadError { __typename ... on PythonError { message } } }
    ... on UnauthorizedError { message }
    ... on ReloadNotSupported { message }
    ... on RepositoryLocationNotFound { message }
  }
}"""


def update_state(path: Path, added: Iterable[str], gone: Iterable[str], environment: Environment) -> State:
    """Adds topics to the state, removes those that are gone, notes the environment, and returns the state.

    Raises PlatformError where it can't be written.
    """
    before = read_state(path)
    after = State((before.topics | frozenset(added)) - frozenset(gone), environment)
    if after != before:
        try:
            write_state(path, after)
        except OSError as error:
            raise PlatformError(f"the topics of the cluster can't be kept: {error}") from error
    return after


def reload_definitions(url: str, location: str) -> None:
    """Has the webserver at `url` load a code location again.

    Raises:
        ServiceUnreachableError: It can't be reached.
        PlatformError: It refuses, or the definitions can't be loaded.
    """
    answer = post_json(
        f"{url.rstrip('/')}/graphql",
        {"query": RELOAD, "variables": {"name": location}},
        timeout_s=RELOAD_TIMEOUT_S,
        advice="MILLRACE_DAGSTER_URL names Dagster's webserver",
        use_proxy=False,
    )
    match answer:
        case {"data": {"reloadRepositoryLocation": {"locationOrLoadError": {"__typename": "RepositoryLocation"}}}}:
            return
        case {"data": {"reloadRepositoryLocation": {"locationOrLoadError": {"message": str(message)}}}}:
            raise PlatformError(f"the definitions of {location} can't be loaded: {message}")
        case _:
            raise PlatformError(f"{url} did not load {location} again: {str(answer)[:500]}")
