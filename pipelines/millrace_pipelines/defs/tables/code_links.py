"""Links from an asset to its code and its declarations, which the UI opens in an editor."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, cast

import dagster as dg

CODE_REFERENCES = "dagster/code_references"


class CodeLink(NamedTuple):
    """A place in a file, and what it is, such as `declaration`."""

    path: str
    line: int = 1
    label: str | None = None


Asset = dg.AssetsDefinition | dg.AssetSpec


def linked(assets: Sequence[Asset]) -> list[Asset]:
    """Returns the assets with links to the functions that make them; one that is made elsewhere gets none."""
    with _beta_accepted():
        return cast("list[Asset]", list(dg.with_source_code_references(assets)))


def code_links(links: Iterable[CodeLink]) -> dict[str, dg.CodeReferencesMetadataValue]:
    """Returns an asset's metadata with links to files, in their order."""
    with _beta_accepted():
        references = [
            dg.LocalFileCodeReference(file_path=os.path.abspath(link.path), line_number=link.line, label=link.label)
            for link in links
        ]
        return {CODE_REFERENCES: dg.CodeReferencesMetadataValue(code_references=list(references))}


@contextmanager
def _beta_accepted() -> Iterator[None]:
    """Keeps Dagster from warning that links are in beta: their fields are few, and a change would fail the tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        yield
