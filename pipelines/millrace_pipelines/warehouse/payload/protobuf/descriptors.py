"""Message types of Protobuf: from a descriptor set, or from .proto text compiled by protoc (grpcio-tools).

FILE.desc, FILE.pb    a FileDescriptorSet, as `protoc --include_imports --descriptor_set_out=FILE.desc` writes it
FILE.proto            the text, with the texts of the files that it imports, those of Google's own types apart
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from types import ModuleType

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from millrace_pipelines.warehouse.errors import SchemaError

WELL_KNOWN = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2, descriptor_pb2)
COMPILE_TIMEOUT_S = 60


def compile_proto(name: str, files: Mapping[str, str]) -> bytes:
    """Compiles a .proto file and returns the descriptor set of it and of what it imports.

    Raises:
        SchemaError: protoc refuses a file, or is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="millrace-proto-") as directory:
        for file_name, text in files.items():
            _write(directory, file_name, text)
        out = os.path.join(directory, "out.desc")
        options = [f"--proto_path={directory}", "--include_imports", f"--descriptor_set_out={out}"]
        command = [sys.executable, "-m", "grpc_tools.protoc", *options, f"--proto_path={_google_protos()}", name]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise SchemaError(f"{name}: protoc took longer than {COMPILE_TIMEOUT_S} s") from None
        if run.returncode:
            raise SchemaError(f"{name}: {(run.stderr or run.stdout).strip()}")
        with open(out, "rb") as file:
            return file.read()


def _google_protos() -> str:
    try:
        import grpc_tools  # noqa: PLC0415 # needed for .proto texts alone
    except ImportError:
        raise SchemaError("a .proto text needs grpcio-tools (pip install grpcio-tools), or a descriptor set") from None
    return os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")


def _write(directory: str, name: str, text: str) -> None:
    path = os.path.normpath(os.path.join(directory, name))
    if not path.startswith(directory + os.sep):
        raise SchemaError(f"{name}: not the name of a .proto file")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def message_descriptor(descriptor_set: bytes, message: str | None, *, path: tuple[int, ...] = (0,)) -> Descriptor:
    """Returns the descriptor of a message type.

    Args:
        descriptor_set: A FileDescriptorSet whose last file is the one meant.
        message: The type's full name; None for the one at `path`.
        path: Places of the type among its file's, then inside of it, as Confluent's message indexes are.

    Raises:
        SchemaError: The bytes are no descriptor set, or it has no such message.
    """
    files = _files(descriptor_set)
    pool = DescriptorPool()
    try:
        for file in [*(_file_of(module) for module in WELL_KNOWN), *files.file]:
            if not _has(pool, file.name):
                pool.Add(file)
        if message is not None:
            named: Descriptor = pool.FindMessageTypeByName(message)
            return named
        found: FileDescriptor = pool.FindFileByName(files.file[-1].name)
    except (KeyError, TypeError) as error:
        raise SchemaError(f"the Protobuf schema has no message {message or path}: {error}") from error
    return _at(found, path)


def _at(file: FileDescriptor, path: tuple[int, ...]) -> Descriptor:
    types: list[Descriptor] = list(file.message_types_by_name.values())
    for depth, place in enumerate(path):
        if not 0 <= place < len(types):
            raise SchemaError(f"{file.name} has no message at {list(path[: depth + 1])}")
        found = types[place]
        types = [one for one in found.nested_types if not one.GetOptions().map_entry]
    return found


def _files(descriptor_set: bytes) -> descriptor_pb2.FileDescriptorSet:
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set)
    except DecodeError as error:
        raise SchemaError(f"not a Protobuf descriptor set: {error}") from None
    if not files.file:
        raise SchemaError("the Protobuf descriptor set has no file")
    return files


def _file_of(module: ModuleType) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


def _has(pool: DescriptorPool, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True
