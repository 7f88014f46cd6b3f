"""What a store refuses, in one sentence: the address, what was tried, and the right that is missing.

obstore and delta-rs, which both speak by object_store, raise errors of several kinds with the store's own answer in
their text. What was tried is told by the request in it, and why it was refused by the answer's code:

    its credentials are unknown or expired     StoreDeniedError
    a clock is wrong                           StoreDeniedError
    there is no such bucket                    BucketNotFoundError
    any other answer 401 or 403                StoreDeniedError, with the right
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from typing import TypeAlias

from millrace_pipelines.warehouse.errors import BucketNotFoundError, StoreDeniedError, StoreError

Tried: TypeAlias = str


class Kind(Enum):
    """Why a store refuses something."""

    BUCKET = auto()
    CLOCK = auto()
    CREDENTIALS = auto()
    RIGHT = auto()


RIGHTS: Mapping[str, Mapping[Tried, str]] = {
    "s3": {
        "read": "s3:GetObject, or s3:ListBucket, without which a missing object can't be told from a forbidden one",
        "list": "s3:ListBucket",
        "write": "s3:PutObject",
        "delete": "s3:DeleteObject",
    },
    "gs": {
        "read": "storage.objects.get",
        "list": "storage.objects.list",
        "write": "storage.objects.create, or storage.objects.delete, without which nothing is overwritten",
        "delete": "storage.objects.delete",
    },
    "abfss": {
        "read": "Read (r)",
        "list": "List (l)",
        "write": "Write (w), or Create (c)",
        "delete": "Delete (d)",
    },
    "hdfs": {
        "read": "r of the file, or x of a folder above it",
        "list": "r and x of the folder",
        "write": "w and x of the folder",
        "delete": "w and x of the folder, and to own the file where the folder is sticky",
    },
}
REQUESTS: tuple[tuple[str, Tried], ...] = (
    (r"list request|list-type=2|comp=list", "list"),
    (r"performing DELETE|\?delete|DeleteObjects|Bulk delete|comp=batch", "delete"),
    (r"performing (PUT|POST)", "write"),
    (r"performing (GET|HEAD)", "read"),
)
"""By the text of an error, what was tried; the first that is found counts."""
CODE = re.compile(r"<Code>(\w+)</Code>|\(code: (\w+)\)|\b(AccessControlException|AuthorizationException)\b")
WORDS = (r"<Message>([^<]*?)(?:\s*RequestId:[^<]*)?</Message>", r"(Permission denied: [^\n\"]*)", r": ([^:]*) \(code: ")
"""Where an answer has its words for people."""
REFUSED = re.compile(r"\b403 Forbidden|\(code: 403\)|necessary privileges")
KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("NoSuchBucket", "ContainerNotFound", "InvalidBucketName"), Kind.BUCKET),
    "RequestTimeTooSkewed": Kind.CLOCK,
    **dict.fromkeys(
        ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidTokenId", "ExpiredToken",
         "InvalidSecurity", "AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation"),
        Kind.CREDENTIALS,
    ),
    **dict.fromkeys(
        ("AccessDenied", "AllAccessDisabled", "AuthorizationFailure", "AuthorizationPermissionMismatch",
         "AuthorizationProtocolMismatch", "AuthorizationServiceMismatch", "AuthorizationResourceTypeMismatch",
         "InsufficientAccountPermissions", "AccessControlException", "AuthorizationException"),
        Kind.RIGHT,
    ),
}  # fmt: skip
"""By the code of an answer, why it was refused."""
UNKNOWN = re.compile(r"failed to authenticate|lacked valid authentication|\b401 Unauthorized")
NO_PLACE = re.compile(r"(list request|performing PUT).*404 Not Found", re.DOTALL)
"""Tells of no bucket where an answer has no code: in one, a list may be empty, and a new object is put."""
ESCAPES = re.compile(r"\x1b\[[0-9;]*m|↳")


def refusal(where: str, said: str, tried: Tried | None = None) -> StoreError | None:
    """Returns the error of what a store refused; None where the text of an error tells of no refusal.

    Args:
        where: The address of what was asked for.
        said: The text of the error.
        tried: What was tried, where the text does not tell it.
    """
    rights = RIGHTS.get(where.partition(":")[0])
    code = next((one for found in CODE.finditer(said) for one in found.groups() if one), "")
    kind = _kind(code, said)
    if rights is None or kind is None:
        return None
    tried = tried or next((one for pattern, one in REQUESTS if re.search(pattern, said)), "read")
    begun, words = f"{where}: tried to {tried} there", f"({': '.join(one for one in (code, _words(said)) if one)})"
    match kind:
        case Kind.BUCKET:
            return BucketNotFoundError(f"{begun}; the store has no such bucket {words}")
        case Kind.CLOCK:
            return StoreDeniedError(f"{begun}; this machine's clock is off by more than the store allows {words}")
        case Kind.CREDENTIALS:
            return StoreDeniedError(f"{begun}; the store does not know these credentials, or not any more {words}")
        case Kind.RIGHT:
            return StoreDeniedError(f"{begun}; these credentials lack the right {rights[tried]} {words}")


def _kind(code: str, said: str) -> Kind | None:
    """Returns why a store refused; None where it did not."""
    if UNKNOWN.search(said):
        return Kind.CREDENTIALS
    if code in KINDS:
        return KINDS[code]
    if not code and NO_PLACE.search(said):
        return Kind.BUCKET
    return Kind.RIGHT if REFUSED.search(said) else None


@contextmanager
def refusals(where: str) -> Iterator[None]:
    """Raises errors of delta-rs that tell of a refusal as those of stores; others as they are."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        if (refused := refusal(where, str(error))) is not None:
            raise refused from error
        raise


def one_line(said: str) -> str:
    """Returns an error of object_store on one line, without the store's whole answer and the data that follow."""
    first = ESCAPES.sub("", said).partition("<?xml")[0].partition("Debug source")[0]
    return " ".join(first.split()).rstrip(": ")


def _words(said: str) -> str:
    """Returns the store's own words."""
    plain = said.replace('\\"', "'").replace("\\n", "\n")
    found = next((one for one in (re.search(pattern, plain) for pattern in WORDS) if one), None)
    if found is None:
        return "403 Forbidden" if "403" in said else one_line(said)
    return " ".join(found[1].split()).rstrip(".")
