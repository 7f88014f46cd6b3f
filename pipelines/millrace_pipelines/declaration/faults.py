"""What is wrong with the files of a project, in sentences with file and line: of a declaration, of YAML, of Python.

Dagster raises what it found in a file below errors of its own, which show its whole tree of components and a traceback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from dagster_shared.yaml_utils.source_position import SourcePositionTree
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from millrace.suggestions import did_you_mean
from millrace_pipelines.declaration.attributes import ClusterDeclaration, MirrorDeclaration, TableDeclaration

COMPONENT = "millrace_pipelines.MillraceComponent"
KEYS_OF_A_FILE = ("type", "attributes", "requirements", "template_vars_module", "post_processing")
VALUE_ERROR = "Value error, "
TYPE = re.compile(r"\s*type:\s*[\"']?([\w.]+)")
QUOTED = re.compile(r"'([^']+)'")
PLACE = re.compile(r"(\S+:\d+) - (\S+)")


def faults_of(error: BaseException, root: Path) -> list[str]:
    """Returns what is wrong with the files of the project in `root`, at least one sentence."""
    causes = [*_causes(error)]
    found = declaration_errors(error) or [line for cause in causes for line in _of_syntax(cause)][:1]
    return found or [_of_type(causes, root) or _of_another_kind(causes)]


def declaration_errors(error: BaseException) -> list[str]:
    """Returns a line for each field that a component's file has wrong; none where the error is of another kind.

    Dagster raises pydantic's error below its own, with the line of the file behind the name of each field.
    """
    for cause in _causes(error):
        if isinstance(cause, ValidationError):
            return [_line(each) for each in cause.errors()]
    return []


def validation_lines(error: ValidationError, path: str, places: SourcePositionTree | None) -> list[str]:
    """Returns a line for each field that a file's attributes have wrong, with the field's line where it is known."""
    return [_line({**each, "loc": (_placed(path, each["loc"], places),)}) for each in error.errors()]


def _placed(path: str, keys: tuple[int | str, ...], places: SourcePositionTree | None) -> str:
    position = path if places is None else places.lookup_closest_and_path(list(keys), None)[0]
    return f"{'.'.join(map(str, ('attributes', *keys)))} at {position}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _line(error: ErrorDetails) -> str:
    field, _, position = (str(error["loc"][0]) if error["loc"] else "").partition(" at ")
    path = field.removeprefix("attributes.")
    words = error["msg"].removeprefix(VALUE_ERROR)
    if error["type"] == "extra_forbidden":
        words = f"there is no such field{did_you_mean(path.rpartition('.')[2], _fields_beside(field))}"
    elif error["type"] == "enum":
        words += did_you_mean(str(error["input"]), QUOTED.findall(words))
    return ": ".join(part for part in (position, path, words) if part)


def _fields_beside(field: str) -> list[str]:
    """Returns the fields that may stand where a file has the field of this path."""
    if not field.startswith("attributes."):
        return [*KEYS_OF_A_FILE]
    models: dict[str, type[BaseModel]] = {
        "attributes.tables.": TableDeclaration,
        "attributes.mirror.": MirrorDeclaration,
    }
    model = next((one for beginning, one in models.items() if field.startswith(beginning)), ClusterDeclaration)
    return [one.alias or name for name, one in model.model_fields.items()]


def _of_syntax(error: BaseException) -> list[str]:
    """Returns where a file is no YAML or no Python; nothing for another error."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is not None and problem:  # PyYAML's errors, which come with Dagster
        return [f"{mark.name}:{mark.line + 1}: {problem}"]
    if isinstance(error, SyntaxError):
        return [f"{error.filename}:{error.lineno}: {error.msg}"]
    return []


def _of_type(causes: list[BaseException], root: Path) -> str | None:
    """Returns where a file names a type of component that there is not, or has no component; None for other errors.

    Dagster's error names only parts of the type, and no file.
    """
    message = str(causes[0]).rstrip(".")
    for path in sorted((root / "defs").rglob("*.yaml")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if "No components found" in message and not any(line.strip().strip("-") for line in lines):
            return f"{path}: the file is empty"
        for number, line in enumerate(lines, 1):
            named = TYPE.match(line)
            parts = named[1].rpartition(".") if named else ("", "", "")
            if f"`{parts[0]}`" in message and (f"`{parts[2]}`" in message or "not found" in message):
                return f"{path}:{number}: type: {message}{did_you_mean('.'.join(parts[::2]), [COMPONENT])}"
    return None


def _of_another_kind(causes: list[BaseException]) -> str:
    """Returns an error's place, where its text begins with one, and the innermost reason."""
    lines = [str(cause).strip().partition("\n")[0] for cause in causes]
    place = next((f"{found[1]}: {found[2]}: " for line in lines if (found := PLACE.match(line))), "")
    return f"{place}{lines[-1] or type(causes[-1]).__name__}"
