"""Links from an asset to its code and its declarations, which the UI opens in an editor."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import NamedTuple

import dagster as dg

CODE_REFERENCES = "dagster/code_references"


class CodeLink(NamedTuple):
    """A place in a file, and what it is, such as `declaration`."""

    path: str
    line: int = 1
    label: str | None = None


def code_links(links: Iterable[CodeLink]) -> dict[str, dg.CodeReferencesMetadataValue]:
    """Returns an asset's metadata with links to files, in their order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # the fields are few and old; a change would fail the tests
        references = [
            dg.LocalFileCodeReference(file_path=os.path.abspath(link.path), line_number=link.line, label=link.label)
            for link in links
        ]
        return {CODE_REFERENCES: dg.CodeReferencesMetadataValue(code_references=list(references))}
