"""Reads the settings of a mirror from options and a file, and names what is wrong by its line and key.

TOML's parser tells no lines: that of a key is found by looking for the key below its table's header. Names of files in
it are relative to its own folder, those in options to the current one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

from millrace.addresses import parse_addresses
from millrace.client.client_settings import TABLE
from millrace.client.client_settings import check_known as check_property
from millrace.errors import InvalidConfigError, MalformedValueError
from millrace.security.client_config import ENV
from millrace.security.client_security import is_of_security
from millrace.suggestions import did_you_mean
from millrace.zk.security import ZOOKEEPER_SECURITY
from millrace_pipelines.mirror.settings import MirrorSettings, Side, Source

NAME = re.compile(r"[A-Za-z0-9_-]+")
HEADER = re.compile(r"\s*(\[\[?)\s*([\w.-]+)\s*\]\]?")
KEY = re.compile(r"""\s*["']?([\w.-]+)["']?\s*=""")
SOURCES, TARGET = "sources", "target"
OF_FILES = re.compile(r"client_config|(.*\.)?location")  # settings whose value is the name of a file
PATTERNS = ("topics", "topics_exclude", "groups", "groups_exclude")  # for all sources, unless one has its own

Key = tuple[str | int, ...]
Options = Mapping[str, Any]
NO_OPTIONS: Options = {}


def read_settings(config: str | None, options: Options = NO_OPTIONS) -> MirrorSettings:
    """Returns the settings by a file, if there is one, and by options, which have the file's form and win over it.

    Options of a source belong to the file's source of the same name, or make a further one. Raises InvalidConfigError.
    """
    document, lines = _file(config) if config else ({}, {})
    return _Reader(config, lines, _with_options(document, options)).settings()


def parse_source(text: str) -> dict[str, str]:
    """Returns the options of the source in `NAME=HOST:PORT,…`; raises MalformedValueError for another form."""
    name, equals, bootstrap = text.partition("=")
    if not (name and equals and bootstrap):
        raise MalformedValueError(f"{text!r}: expected NAME=HOST:PORT")
    return {"name": name, "bootstrap": bootstrap}


def _file(path: str) -> tuple[dict[str, Any], dict[Key, int]]:
    try:
        text = Path(path).read_text(encoding="utf-8")
        return _beside(Path(path).parent, tomllib.loads(text)), _lines(text)
    except (OSError, ValueError) as error:
        raise InvalidConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _beside(folder: Path, given: Any) -> Any:
    """Returns what a file says, with the names of files in it as seen from here, given the folder where it lies."""
    if isinstance(given, Mapping):
        return {
            name: str(folder / one) if _names_file(name, one) else _beside(folder, one) for name, one in given.items()
        }
    return [_beside(folder, one) for one in given] if isinstance(given, list) else given


def _names_file(name: str, value: object) -> bool:
    is_name = isinstance(value, str) and value != "" and not value.startswith(ENV)
    return is_name and OF_FILES.fullmatch(name) is not None


def _lines(text: str) -> dict[Key, int]:
    """Returns the line of each key, by the names and indexes that lead to it."""
    found: dict[Key, int] = {}
    table: Key = ()
    count: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := HEADER.match(line):
            name = header[2]
            table = tuple(name.split("."))
            if header[1] == "[[":
                count[name] = count.get(name, -1) + 1
            if table[0] in count:
                table = (table[0], count[str(table[0])], *table[1:])
            found.setdefault(table, number)
        elif key := KEY.match(line):
            found.setdefault((*table, key[1]), number)
    return found


def _with_options(document: Mapping[str, Any], options: Options) -> dict[str, Any]:
    merged = dict(document) | {name: value for name, value in options.items() if name not in (SOURCES, TARGET)}
    if TARGET in options:
        merged[TARGET] = _table(merged.get(TARGET)) | options[TARGET]
    sources = [_table(one) for one in merged.get(SOURCES, ())]
    by_name = {one.get("name"): one for one in sources}
    for option in options.get(SOURCES, ()):
        if option["name"] in by_name:
            by_name[option["name"]] |= option
        else:
            sources.append(dict(option))
    return merged | {SOURCES: sources}


def _table(given: object) -> dict[str, Any]:
    return dict(given) if isinstance(given, Mapping) else {}


class _Reader:
    """Makes settings of a document, and names the place of what is wrong."""

    def __init__(self, path: str | None, lines: Mapping[Key, int], document: Mapping[str, Any]) -> None:
        self._path = path
        self._lines = lines
        self._document = document

    def settings(self) -> MirrorSettings:
        known = {one.name: one for one in fields(MirrorSettings) if one.metadata}
        self._check_names((), self._document, [*known, *PATTERNS, SOURCES, TARGET])
        values: dict[str, Any] = {
            name: self._value((name,), one, self._document[name]) for name, one in known.items()
            if name in self._document
        }  # fmt: skip
        if values.get("replication_factor") == 0:
            self._wrong(("replication_factor",), "0: a number from 1 on, or -1 for the target's default")
        target, sources = self._target(), tuple(self._sources())
        if values.get("users"):
            self._check_zookeepers(target, sources)
        return MirrorSettings(target=target, sources=sources, **values)

    def _check_zookeepers(self, target: Side, sources: Iterable[Source]) -> None:
        for name, side in [(TARGET, target), *((f"source {one.name}", one) for one in sources)]:
            if side.zookeeper is None:
                self._wrong(
                    ("users",),
                    f"no request tells what is stored of a password, so that users go from ZooKeeper to ZooKeeper, and "
                    f"that of the {name} is not known: give its zookeeper, HOST:PORT; or, for a cluster without "
                    "ZooKeeper, set users = false and create them at the target by their passwords: millrace users "
                    "create",
                )

    def _target(self) -> Side:
        if not self._document.get(TARGET):
            self._wrong((TARGET,), "which cluster? its bootstrap is needed, HOST:PORT")
        given = self._document[TARGET]
        self._check_names((TARGET,), given, _names(Side))
        return Side(**self._side((TARGET,), given))

    def _sources(self) -> Iterator[Source]:
        names: list[str] = []
        if not self._document[SOURCES]:
            self._wrong((SOURCES,), "which clusters? a name and a bootstrap are needed, NAME=HOST:PORT")
        for index, given in enumerate(self._document[SOURCES]):
            key = (SOURCES, index)
            self._check_names(key, given, _names(Source))
            name = given.get("name")
            if not isinstance(name, str) or not NAME.fullmatch(name):
                self._wrong((*key, "name"), f"{name!r}: a name of letters, digits, _ and - is expected")
            if name in names:
                self._wrong((*key, "name"), f"{name}: another source has this name")
            names.append(name)
            yield Source(name=name, **self._side(key, given), **self._patterns(key, given))

    def _side(self, key: Key, given: Mapping[str, Any]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for name in ("bootstrap", "client_config", "zookeeper"):
            if name in given:
                told[name] = self._text((*key, name), given[name])
        try:
            parse_addresses(told.get("bootstrap", ""))
        except MalformedValueError as error:
            self._wrong((*key, "bootstrap"), str(error))
        return told | {"properties": self._properties((*key, "properties"), given.get("properties", {}))}

    def _properties(self, key: Key, given: object) -> dict[str, str]:
        """Returns a client's properties; what is wrong with a value is not said here, since it may be a secret."""
        if not isinstance(given, Mapping):
            self._wrong(key, "a table of client properties is expected")
        texts = {name: value if isinstance(value, str) else str(value).lower() for name, value in _flat(given)}
        for name, text in texts.items():
            if is_of_security(name):
                continue
            try:
                if name in ZOOKEEPER_SECURITY.keys:
                    ZOOKEEPER_SECURITY.parse({name: text})
                    continue
                check_property([name], ("client.id", "request.timeout.ms"))
                TABLE.parse({name: text})
            except InvalidConfigError as error:
                self._wrong((*key, name), str(error))
        return texts

    def _patterns(self, key: Key, given: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in PATTERNS:
            at: Key = (*key, name) if name in given else (name,)
            if name in given or name in self._document:
                found[name] = self._expressions(at, given.get(name, self._document.get(name)))
        if not found.get("topics"):
            self._wrong(("topics",), "which topics? a regular expression is needed, such as orders.*")
        return found

    def _value(self, key: Key, declared: Field[Any], given: object) -> object:
        default = declared.default
        if isinstance(default, tuple):
            return self._expressions(key, given)
        if isinstance(default, StrEnum):
            choices = [str(one) for one in type(default)]
            if given not in choices:
                self._wrong(key, f"{given!r}: one of {', '.join(choices)}{did_you_mean(str(given), choices)}")
            return type(default)(given)
        if isinstance(default, bool):
            return given if isinstance(given, bool) else self._wrong(key, f"{given!r}: true or false is expected")
        if not isinstance(given, int) or isinstance(given, bool) or given < declared.metadata["minimum"]:
            self._wrong(key, f"{given!r}: a whole number from {declared.metadata['minimum']} on is expected")
        return given

    def _expressions(self, key: Key, given: object) -> tuple[str, ...]:
        listed = [given] if isinstance(given, str) else given
        if not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed):
            self._wrong(key, f"{given!r}: a regular expression, or a list of them, is expected")
        for one in listed:
            try:
                re.compile(one)
            except re.error as error:
                self._wrong(key, f"{one!r} is no regular expression: {error}")
        return tuple(listed)

    def _text(self, key: Key, given: object) -> str:
        return given if isinstance(given, str) and given else self._wrong(key, f"{given!r}: a text is expected")

    def _check_names(self, key: Key, given: object, known: Iterable[str]) -> None:
        if not isinstance(given, Mapping):
            self._wrong(key, "a table is expected")
        names = [*known]
        for name in given:
            if name not in names:
                self._wrong((*key, name), f"there is no such setting{did_you_mean(name, names)}")

    def _wrong(self, key: Key, reason: str) -> NoReturn:
        line = next((self._lines[key[:end]] for end in range(len(key), 0, -1) if key[:end] in self._lines), None)
        place = "" if self._path is None else f"{self._path}: " if line is None else f"{self._path}, line {line}: "
        raise InvalidConfigError(f"{place}{_dotted(key)}: {reason}")


def _names(side: type[Side]) -> list[str]:
    return [one.name for one in fields(side)]


def _flat(given: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yields properties by their names, of which TOML makes tables at each dot where they are not quoted."""
    for name, value in given.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _dotted(key: Key) -> str:
    return "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in key).removeprefix(".")
