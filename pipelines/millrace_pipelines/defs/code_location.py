"""How a sensor has the definitions loaded again: by a request to Dagster's webserver, as the UI's button makes it."""

from __future__ import annotations

import dagster as dg

from millrace.errors import PlatformError
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
LOCATION = "millrace"


def reload_location(context: dg.SensorEvaluationContext, url: str) -> None:
    """Has the webserver at `url` load the code location of a sensor again; raises as `reload_definitions`."""
    origin = context.code_location_origin
    reload_definitions(url, LOCATION if origin is None else origin.location_name)


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
