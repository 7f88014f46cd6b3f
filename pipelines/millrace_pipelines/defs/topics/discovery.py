"""Keeps the definitions up to the cluster's topics: their state is written, and the code location is loaded again.

    look ─► new topics, or topics that two looks in a row lack ─► state (declaration.state) ─► reload by the webserver

Where no webserver is named (MILLRACE_DAGSTER_URL), the state is written, and the tick says that a reload is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from millrace.errors import PlatformError
from millrace_pipelines.declaration.state import read_topics, write_topics
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


def update_state(path: Path, added: Iterable[str], gone: Iterable[str]) -> frozenset[str]:
    """Adds topics to the state, removes those that are gone, and returns the topics of the state.

    Raises PlatformError where it can't be written.
    """
    before = read_topics(path)
    after = (before | frozenset(added)) - frozenset(gone)
    if after != before:
        try:
            write_topics(path, after)
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
