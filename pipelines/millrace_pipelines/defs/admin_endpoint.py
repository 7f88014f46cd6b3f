"""The broker's admin endpoint as the definitions ask it for maintenance (docs/maintenance.md), and what it answers."""

from __future__ import annotations

import re
import ssl
from typing import Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar, cast

from millrace.errors import PlatformError
from millrace.json_values import Json
from millrace.security.client_config import TOKEN, WAY_ON
from millrace_pipelines.http import ServiceUnreachableError, UnsuccessfulStatusError, post_json

MAINTENANCE_TIMEOUT_S = 3600.0
UNAUTHORIZED = 401
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
FIRST_SERVER_ERROR = 500
OfPartition = TypeVar("OfPartition")


class MaintenanceRefusedError(PlatformError):
    """A broker refused a maintenance request, and would refuse the same request again."""


class RewrittenSegment(TypedDict):
    """A segment that was, or in a dry run would be, deleted or rewritten, with its size before that."""

    base_offset: int
    size_bytes: int
    reason: str


class VerifiedSegment(TypedDict):
    """A segment that was read, and how many findings are in it."""

    base_offset: int
    size_bytes: int
    records: int
    findings: int


class DamagedRange(TypedDict):
    """A damaged range in a partition's log."""

    file: str
    position: int
    reason: str


class RetentionOfPartition(TypedDict):
    """The segments of one partition that retention deleted, or in a dry run would delete."""

    topic: str
    partition: int
    deleted_segments: int
    deleted_bytes: int
    by_segment: list[RewrittenSegment]


class CompactionOfPartition(TypedDict):
    """The result of compacting one partition; `error` says why it stopped there, "" where it did not."""

    topic: str
    partition: int
    bytes_before: int
    bytes_after: int
    records_kept: int
    records_dropped: int
    by_segment: list[RewrittenSegment]
    error: str


class VerifiedPartition(TypedDict):
    """The result of verifying one partition's log: what was read, and the damaged ranges."""

    topic: str
    partition: int
    segments: int
    records: int
    size_bytes: int
    findings: list[DamagedRange]
    by_segment: list[VerifiedSegment]


class ScrubbedDirectory(TypedDict):
    """How far the scrubber has come in a data directory; times are milliseconds since 1970.

    `round_started_ms` is None between two rounds, and `last_ended_ms` before there was a complete one.
    """

    directory: str
    checked_bytes: int
    total_bytes: int
    round_started_ms: int | None
    last_ended_ms: int | None
    damage: list[str]


class Report(TypedDict, Generic[OfPartition]):
    """A broker's answer to a maintenance request: what was done or found in each partition, and the seconds it took.

    That of `verify` says how far the scrubber has come; a broker of an older release does not.
    """

    seconds: float
    partitions: list[OfPartition]
    scrub: NotRequired[list[ScrubbedDirectory]]


class AdminEndpoint(NamedTuple):
    """The admin endpoint of a broker: its `url`, `http://HOST:PORT`, and its bearer token, "" for none.

    With TLS the URL is `https://HOST:PORT`; `context` has the trusted authorities, None for those of the system.

    `url` may name several brokers, with commas between. Each request goes to one after the other, and the returned
    report has all their partitions.

    Each method takes names or patterns of topics, an empty list for all; a dry run changes nothing and reports what
    would be done. Raises ServiceUnreachableError without an answer, MaintenanceRefusedError where a broker refuses.
    """

    url: str
    token: str
    context: ssl.SSLContext | None = None

    def apply_retention(self, topics: list[str], *, dry_run: bool) -> Report[RetentionOfPartition]:
        """Has the broker delete the segments that are beyond the topics' retention, and returns what it deleted."""
        return cast("Report[RetentionOfPartition]", self._maintain("retention", topics, dry_run=dry_run))

    def compact(self, topics: list[str], *, dry_run: bool, only_due: bool) -> Report[CompactionOfPartition]:
        """Has the broker compact logs, with `only_due` only those whose settings ask for it; returns what it did."""
        return cast(
            "Report[CompactionOfPartition]", self._maintain("compaction", topics, dry_run=dry_run, only_due=only_due)
        )

    def verify(self, topics: list[str], *, dry_run: bool) -> Report[VerifiedPartition]:
        """Has the broker read its logs, check every batch in them, and returns the findings."""
        return cast("Report[VerifiedPartition]", self._maintain("verify", topics, dry_run=dry_run))

    def _maintain(
        self, action: Literal["retention", "compaction", "verify"], topics: list[str], **options: bool
    ) -> dict[str, Json]:
        urls = [one.strip() for one in self.url.split(",")]
        wanted: Json = [*topics] if len(urls) == 1 else [_pattern(one) for one in topics]
        return _together([self._maintain_one(url, action, {"topics": wanted, **options}) for url in urls])

    def _maintain_one(self, broker_url: str, action: str, body: dict[str, Json]) -> dict[str, Json]:
        url = f"{broker_url}/maintenance/{action}"
        advice = "is the broker up, and is this the address of its admin endpoint (MILLRACE_ADMIN_URL)?"
        try:
            report = post_json(
                url,
                body,
                timeout_s=MAINTENANCE_TIMEOUT_S,
                advice=advice,
                token=self._checked_token(),
                context=self.context,
            )
        except UnsuccessfulStatusError as error:
            if error.status >= FIRST_SERVER_ERROR:
                raise
            raise MaintenanceRefusedError(self._refusal(broker_url, action, error)) from error
        if not isinstance(report, dict):
            raise ServiceUnreachableError(f"{url}: the answer is no report: {str(report)[:200]}; {advice}")
        return report

    def _checked_token(self) -> str:
        token = self.token.strip()
        if token and not token.isprintable():
            raise MaintenanceRefusedError(f"{TOKEN} holds characters that no token of an HTTP request may have")
        return token

    def _refusal(self, url: str, action: str, error: UnsuccessfulStatusError) -> str:
        if error.status == UNAUTHORIZED and not self.token.strip():
            return f"the broker's admin endpoint {url} asks for its token; {WAY_ON}"
        if error.status == UNAUTHORIZED:
            return f"the broker's admin endpoint {url} refuses the token; {WAY_ON}"
        match error.answer():
            case {"error": str(reason)}:
                return f"the broker refuses {action}: {reason}"
        return str(error)


def _pattern(topic: str) -> str:
    """Returns a pattern that matches this name alone: a broker refuses a name that it has no log of, not a pattern."""
    return f"[{topic[:1]}]{topic[1:]}" if TOPIC_NAME.fullmatch(topic) else topic


def _together(reports: list[dict[str, Json]]) -> dict[str, Json]:
    """Joins the reports of several brokers into one: partitions and directories of all, and the sum of the seconds."""
    if len(reports) == 1:
        return reports[0]
    return {
        "seconds": sum(cast("float", one["seconds"]) for one in reports),
        "partitions": [partition for one in reports for partition in cast("list[Json]", one["partitions"])],
        "scrub": [directory for one in reports for directory in cast("list[Json]", one.get("scrub", []))],
    }
