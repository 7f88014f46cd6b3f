"""Makes the types of the protocol's messages from their schemas: `python -m millrace_tools.message_types`.

    platform/millrace/wire/messages/API.py       each structure as a protocol, to be read, and as a typed dictionary, to
                                                 be built
    platform/millrace/wire/messages/__init__.py  one `ApiMessages` for each API
    platform/millrace/wire/absent_fields.py      the value of a field in messages of versions that lack it

None of them is committed: the build hook (hatch_build.py) runs this, in an environment that has kio and no other
dependency, so it imports only modules that need no more. A test compares the files with what this makes, so that a
change of a schema is not forgotten.

They cover the versions that the broker serves; of an API without a handler, all versions with a schema. For a new API,
add its key to `millrace.wire.api` and run this; then write the handler.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import millrace.wire
from millrace.wire.api import ApiKey
from millrace.wire.kio_schemas import Direction, api_names, schema, schema_versions
from millrace.wire.schema import SchemaField

WIRE = Path(millrace.wire.__file__).parent
MADE = "Made by `python -m millrace_tools.message_types` while the package is built; edit nothing here."
# The last version that the broker serves, where kio has schemas of newer ones. A test compares them with the handlers'.
LAST_SERVED: Mapping[ApiKey, int] = {
    ApiKey.LIST_OFFSETS: 10,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.DESCRIBE_LOG_DIRS: 4,
}
# Kind of a field: (its type where it is read, where it is built, its value where the protocol names no default).
KINDS: Mapping[str, tuple[str, str, object]] = {
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "uint32", "int64", "error_code"), ("int", "int", 0)),
    **dict.fromkeys(("timedelta_i32", "timedelta_i64"), ("timedelta", "int", timedelta())),
    **dict.fromkeys(("bytes", "records"), ("bytes", "bytes", b"")),
    "bool": ("bool", "bool", False),
    "datetime_i64": ("datetime", "datetime", None),
    "float64": ("float", "float", 0.0),
    "string": ("str", "str", ""),
    "uuid": ("UUID", "UUID", None),
}
FIELDS = "Fields"

Version: TypeAlias = tuple[Direction, int]  # of one of the two messages


@dataclass
class Field:
    """A field of a structure in all versions; `schema` is that of the last version which has it."""

    schema: SchemaField
    versions: set[Version] = field(default_factory=set)
    is_nullable: bool = False
    has_default: bool = False

    @property
    def default(self) -> object:
        """What the field is read as where a version lacks it."""
        one = self.schema
        if one.kind == "struct" and not one.is_array:
            return None
        if one.default is not MISSING:
            return one.default
        if self.is_nullable:
            return None
        return () if one.is_array else KINDS[one.kind][2]


@dataclass
class Structure:
    """A message, or a structure in it, in all versions.

    Where both messages of an API have a structure of one name, it has the fields of both.
    """

    versions: set[Version] = field(default_factory=set)
    fields: dict[str, Field] = field(default_factory=dict)

    def add(self, version: Version, fields: Iterable[SchemaField]) -> None:
        """Adds the fields that one version has."""
        self.versions.add(version)
        for one in fields:
            kept = self.fields.setdefault(one.name, Field(one))
            kept.schema = one
            kept.versions.add(version)
            kept.is_nullable = kept.is_nullable or one.is_nullable
            kept.has_default = kept.has_default or one.default is not MISSING or one.tag is not None

    def absent(self) -> Iterator[tuple[str, Field]]:
        """Yields the fields that some version lacks."""
        return ((name, one) for name, one in self.fields.items() if one.versions != self.versions)


def structures(key: ApiKey) -> dict[str, Structure]:
    """Returns the structures of an API's two messages by name; a message comes before what it is made of."""
    found: dict[str, Structure] = {}

    def add(name: str, version: Version, fields: Iterable[SchemaField]) -> None:
        found.setdefault(name, Structure()).add(version, fields)
        for one in fields:
            if one.kind == "struct":
                add(one.struct, version, one.fields)

    for direction in Direction:
        for version in versions(key):
            add(message_name(key, direction), (direction, version), schema(key, version, direction)[1])
    return found


def versions(key: ApiKey) -> range:
    """Returns the versions that have a schema and are served; all with a schema where there is no handler yet."""
    known = schema_versions(key)
    return range(known.minimum, LAST_SERVED.get(key, known.maximum) + 1)


def message_name(key: ApiKey, direction: Direction) -> str:
    """Returns the name of a message, such as `HeartbeatRequest`."""
    return f"{api_names()[key]}{direction.name.capitalize()}"


def render() -> dict[Path, str]:
    """Returns the text of every file."""
    found = {key: structures(key) for key in ApiKey}
    return {
        WIRE / "absent_fields.py": _absent_fields(found),
        WIRE / "messages" / "__init__.py": _table(),
        **{WIRE / "messages" / f"{key.name.lower()}.py": _module(key, found[key]) for key in ApiKey},
    }


def _module(key: ApiKey, found: Mapping[str, Structure]) -> str:
    body = "".join(_protocol(name, one) + _typed_dictionary(name, one) for name, one in found.items())
    first, *_, last = *versions(key), versions(key)[-1]
    served = f"versions {first} to {last}" if first != last else f"version {first}"
    return f'"""The messages of {api_names()[key]}, {served}.\n\n{MADE}\n"""\n\n{_imports(body)}{body}'


def _imports(body: str) -> str:
    names = {
        "collections.abc": ["Sequence"],
        "datetime": ["datetime", "timedelta"],
        "typing": ["NotRequired", "Protocol", "TypedDict"],
        "uuid": ["UUID"],
    }
    used = {module: [name for name in some if re.search(rf"\b{name}\b", body)] for module, some in names.items()}
    lines = [f"from {module} import {', '.join(some)}\n" for module, some in used.items() if some]
    return "from __future__ import annotations\n\n" + "".join(lines)


def _protocol(name: str, structure: Structure) -> str:
    properties = [
        f"    @property\n    def {field_name}(self) -> {_read_type(one, structure)}: ...\n"
        for field_name, one in structure.fields.items()
    ]
    return f"\n\nclass {name}(Protocol):\n" + ("\n".join(properties) or "    pass\n")


def _typed_dictionary(name: str, structure: Structure) -> str:
    lines = "".join(
        f"    {field_name}: {_built_type(one, structure)}\n" for field_name, one in structure.fields.items()
    )
    return f"\n\nclass {name}{FIELDS}(TypedDict):\n" + (lines or "    pass\n")


def _read_type(one: Field, structure: Structure) -> str:
    inner = one.schema.struct or KINDS[one.schema.kind][0]
    whole = f"tuple[{inner}, ...]" if one.schema.is_array else inner
    may_be_none = one.is_nullable or (one.versions != structure.versions and one.default is None)
    return f"{whole} | None" if may_be_none else whole


def _built_type(one: Field, structure: Structure) -> str:
    kind = one.schema.kind
    inner = f"{one.schema.struct}{FIELDS}" if one.schema.struct else KINDS[kind][1]
    whole = f"Sequence[{inner}]" if one.schema.is_array else inner
    whole = f"{whole} | None" if one.is_nullable else whole
    whole = whole if one.versions == structure.versions and not one.has_default else f"NotRequired[{whole}]"
    return f"{whole}  # ms" if kind.startswith("timedelta") else whole


def _table() -> str:
    keys = sorted(ApiKey, key=lambda key: key.name)
    modules = "".join(f"        {key.name.lower()},\n" for key in keys)
    rows = "".join(_row(key) for key in keys)
    return (
        f'"""The messages of every API, in the types that mypy checks them by.\n\n{MADE}\n"""\n\n'
        "from __future__ import annotations\n\nfrom typing import TYPE_CHECKING\n\n"
        "from millrace.wire.api import ApiKey\nfrom millrace.wire.api_messages import ApiMessages\n\n"
        f"if TYPE_CHECKING:\n    from millrace.wire.messages import (\n{modules}    )\n\n{rows}"
    )


def _row(key: ApiKey) -> str:
    module = key.name.lower()
    types = "".join(
        f"    {module}.{message_name(key, direction)}{suffix},\n" for direction in Direction for suffix in ("", FIELDS)
    )
    return f"{key.name}: ApiMessages[\n{types}] = ApiMessages(ApiKey.{key.name})\n"


def _absent_fields(found: Mapping[ApiKey, Mapping[str, Structure]]) -> str:
    rows = []
    for key, some in found.items():
        absent = {name: [*one.absent()] for name, one in some.items()}
        if any(absent.values()):
            inner = "".join(_absent(name, fields) for name, fields in absent.items() if fields)
            rows.append(f"    ApiKey.{key.name}: {{\n{inner}    }},\n")
    return (
        '"""The value of a field in messages of versions that lack it: the default of the protocol.\n\n'
        f'{MADE}\n"""\n\n'
        "from __future__ import annotations\n\nfrom collections.abc import Mapping\nfrom datetime import timedelta\n\n"
        "from millrace.wire.api import ApiKey\n\n"
        "# By API, structure and field.\n"
        f"ABSENT_FIELDS: Mapping[int, Mapping[str, Mapping[str, object]]] = {{\n{''.join(rows)}}}\n"
    )


def _absent(name: str, fields: Iterable[tuple[str, Field]]) -> str:
    lines = "".join(f'            "{field_name}": {_literal(one.default)},\n' for field_name, one in fields)
    return f'        "{name}": {{\n{lines}        }},\n'


def _literal(value: object) -> str:
    if isinstance(value, timedelta):
        return f"timedelta(milliseconds={value // timedelta(milliseconds=1)})"
    return repr(int(value)) if isinstance(value, int) and not isinstance(value, bool) else repr(value).replace("'", '"')


def main() -> None:
    """Writes the files that differ, and takes away those of APIs that are gone."""
    made = render()
    for path in {*WIRE.joinpath("messages").glob("*.py")} - made.keys():
        path.unlink()
    for path, text in made.items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
