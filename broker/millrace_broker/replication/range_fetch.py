"""Fetches offsets that a damaged log lacks from the other replicas of its partition, and takes what fits.

    Fetch v17, as a consumer that is a broker, from the leader, the in-sync replicas, the others
        → `taken`: the leading batches of the answer that fit

| a fetched batch must | as |
|---|---|
| have a CRC that matches, and a known codec | it may be damaged there, too |
| begin where the one before ends, or behind that where compaction may have left a gap | a hole is no healing |
| begin before only as the first one, across the log start offset | other replicas may have deleted what is below it |
| have all its records, but for the same case | a tombstone that is gone there may be needed here |
| end within the range | replicas have the same batches |
| have a leader epoch between those around the range | the replica may have another history |
| be the same at another replica, if one answers (compacted logs differ) | one of the two may be wrong |

A consumer reads what is committed, so that nothing is taken that may be cut off yet. A field of Millrace's own, with
nothing in it, says that it is a broker, which needs ClusterAction, as to follow, and no Read.

Other replicas may not know yet that the batches are committed: a leader with damage can't tell them. Then the rest of
one leader epoch is asked for (`of_known_epoch`): batches of one epoch at one offset are the same in all replicas. Where
the damage has hidden the epochs, too, replicas that are in sync, or eligible to lead, are asked for what this one knows
as committed: they have the same there (`committed`).

Runs on the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from millrace.error_codes import error_sentence
from millrace.errors import BrokerError, ErrorCode, InvalidRecordError, MillraceError, RecordError
from millrace.records.batch import HEADER_BYTES, NO_LEADER_EPOCH, BatchHeader, check_crc, read_header
from millrace.records.compression import codec_of
from millrace.wire.api import ApiKey
from millrace.wire.encoder import contents
from millrace.wire.fetch import (
    CONSUMER,
    FINAL_EPOCH,
    FOLLOWERS_VERSION,
    NO_SESSION,
    READ_UNCOMMITTED,
    FetchPartition,
    FetchRequest,
    PartitionFetched,
    PartitionKey,
    decode_fetch_response,
    encode_fetch_request,
)
from millrace_broker.replication.broker_link import BrokerLink
from millrace_broker.replication.epoch_ends import Entries, end_of_epoch, epoch_of_offset

FETCH_BYTES = 1 << 20


class Missing(NamedTuple):
    """The offsets to fetch, the leader epochs around them, and whether a replica may have left some of them out.

    The first batch may begin at `least_offset` or above, if it has `next_offset`.
    """

    least_offset: int
    next_offset: int
    end_offset: int
    least_epoch: int
    largest_epoch: int
    may_leave_out: bool

    def behind(self, offset: int) -> Missing:
        """Returns what is missing from an offset on, at which the next batch has to begin."""
        return self._replace(least_offset=offset, next_offset=offset)


def of_known_epoch(missing: Missing, entries: Entries, log_end_offset: int) -> Missing | None:
    """Returns what is missing of the leader epoch that the log has had at its beginning; None where that is not known.

    Compacted logs may have other batches.
    """
    epoch = epoch_of_offset(entries, missing.next_offset)
    if epoch == NO_LEADER_EPOCH or missing.may_leave_out:
        return None
    end_offset = min(missing.end_offset, end_of_epoch(entries, epoch, log_end_offset)[1])
    return missing._replace(end_offset=end_offset, least_epoch=epoch, largest_epoch=epoch)


def committed(missing: Missing, high_watermark: int) -> Missing | None:
    """Returns what is missing below the high watermark, which replicas in sync have alike; None without any."""
    if missing.next_offset >= high_watermark:
        return None
    return missing._replace(end_offset=min(missing.end_offset, high_watermark))


def epochs_around(
    entries: Entries, start_offset: int, end_offset: int, *, newest: tuple[int, int], may_leave_out: bool
) -> tuple[int, int]:
    """Returns the least and the largest leader epoch that batches between two offsets may have.

    `entries` are those that the log knows, and `newest` is the present leader's, with the log's end. Damage may have
    hidden some. Where offsets may be left out, the batch behind the range may begin later, with a newer epoch.
    """
    largest = epoch_of_offset((*entries, newest), end_offset)
    if may_leave_out or largest == NO_LEADER_EPOCH:
        otherwise = newest[0] if largest == NO_LEADER_EPOCH else largest
        largest = next((epoch for epoch, start in entries if start >= end_offset), otherwise)
    return epoch_of_offset(entries, start_offset - 1), largest


class Taken(NamedTuple):
    """The fetched batches that fit, and the offset behind them."""

    batches: bytes
    next_offset: int


def taken(fetched: PartitionFetched, missing: Missing) -> Taken:
    """Returns the leading batches of an answer that fit into what is missing.

    Raises CorruptRecordError, UnsupportedCodecError or InvalidRecordError where the first batch does not fit, and
    InvalidRecordError without any.
    """
    batches, position, next_offset = memoryview(contents(fetched.records)), 0, missing.next_offset
    while len(batches) - position >= HEADER_BYTES and next_offset < missing.end_offset:
        header = read_header(batches, position)
        if header.size_bytes > len(batches) - position:
            break
        if missing.may_leave_out and header.base_offset >= missing.end_offset:
            next_offset = missing.end_offset
            break
        try:
            _check_fits(batches, position, header, missing.behind(next_offset) if position else missing)
        except RecordError:
            if not position:
                raise
            break  # what is in front of it fits
        position, next_offset = position + header.size_bytes, header.next_offset
    if not batches and missing.may_leave_out and fetched.high_watermark >= missing.end_offset:
        next_offset = missing.end_offset
    if next_offset == missing.next_offset:
        raise InvalidRecordError(f"it has nothing committed at offset {next_offset}")
    return Taken(bytes(batches[:position]), next_offset)


def _check_fits(batches: memoryview, position: int, header: BatchHeader, missing: Missing) -> None:
    check_crc(batches, position, header)
    codec_of(header.codec_id)
    next_offset = missing.next_offset
    is_across = missing.least_offset <= header.base_offset < next_offset < header.next_offset
    is_behind = missing.may_leave_out and header.base_offset > next_offset
    if not (header.base_offset == next_offset or is_across or is_behind) or header.next_offset > missing.end_offset:
        raise InvalidRecordError(
            f"its batch has offsets {header.base_offset} to {header.last_offset}, where {next_offset} to "
            f"{missing.end_offset - 1} are missing"
        )
    if header.record_count <= header.last_offset_delta and not missing.may_leave_out:
        raise InvalidRecordError(f"its batch at offset {header.base_offset} lacks records, as compaction leaves them")
    if not missing.least_epoch <= header.partition_leader_epoch <= missing.largest_epoch:
        raise InvalidRecordError(
            f"its batch at offset {header.base_offset} is of leader epoch {header.partition_leader_epoch}, and those "
            f"around are of {missing.least_epoch} to {missing.largest_epoch}"
        )


class Sources(NamedTuple):
    """The brokers that have other replicas of a partition, the likeliest to have all of it first, and its epoch.

    Those `in_sync` have all that is committed.
    """

    brokers: tuple[int, ...]
    leader_epoch: int
    in_sync: tuple[int, ...] = ()


class OtherReplicas:
    """Reads the other replicas of one partition as a consumer does; `refusal` says why none could give a range."""

    def __init__(
        self,
        link_to: Callable[[int], Awaitable[BrokerLink]],
        links: AsyncExitStack,
        key: PartitionKey,
        sources: Sources,
    ) -> None:
        self.brokers, self.in_sync = sources.brokers, sources.in_sync
        self.refusal = "" if sources.brokers else "it has no other replica"
        self._link_to = link_to
        self._closing = links
        self._links: dict[int, BrokerLink] = {}
        self._key = key
        self._epoch = sources.leader_epoch

    async def next_batches(
        self,
        missing: Missing,
        brokers: Sequence[int] = (),
        most_bytes: int = FETCH_BYTES,
        *,
        is_committed: bool = True,
    ) -> Taken | None:
        """Returns batches that fit, from `missing.next_offset` on, of `brokers` or any; None where none has any.

        They are at most `most_bytes`, or one batch. Those that may not be committed count unless they have to be.
        """
        refusals: list[str] = []
        found: tuple[int, Taken] | None = None
        for broker in brokers or self.brokers:
            try:
                batches = taken(await self._fetch(broker, missing, most_bytes, is_committed=is_committed), missing)
            except MillraceError as error:
                refusals.append(f"broker {broker}: {error}")
                continue
            if found is None:
                found = broker, batches
                if missing.may_leave_out:
                    break
            elif not _agree(found[1].batches, batches.batches):
                refusals.append(f"brokers {found[0]} and {broker} have other batches at offset {missing.next_offset}")
                found = None
                break
            else:
                break
        if found is None:
            what = f"offsets {missing.next_offset} to {missing.end_offset - 1}"
            self.refusal = f"no replica has {what}: {'; '.join(refusals)}"
            return None
        return found[1]

    async def _fetch(self, broker: int, missing: Missing, most_bytes: int, *, is_committed: bool) -> PartitionFetched:
        link = await self._link(broker)
        wanted = {self._key: FetchPartition(missing.next_offset, most_bytes, current_leader_epoch=self._epoch)}
        healed = {} if is_committed else {self._key: missing.end_offset}
        request = FetchRequest(
            CONSUMER, 0, 1, FETCH_BYTES, READ_UNCOMMITTED, NO_SESSION, FINAL_EPOCH, wanted, [], healed=healed
        )
        body = await link.exchange(ApiKey.FETCH, FOLLOWERS_VERSION, encode_fetch_request(request))
        try:
            answer = decode_fetch_response(body)
            fetched = answer.fetched.get(self._key)
            code = answer.error_code or (ErrorCode.UNKNOWN_SERVER_ERROR if fetched is None else fetched.error_code)
            if code or fetched is None:
                raise BrokerError(code, error_sentence(code))
            return fetched._replace(records=bytes(contents(fetched.records)))
        finally:
            link.give_back(body)

    async def _link(self, broker: int) -> BrokerLink:
        link = self._links.get(broker)
        if link is None or link.is_closed:
            link = self._links[broker] = await self._link_to(broker)
            self._closing.callback(link.close)
        return link


def _agree(one: bytes, other: bytes) -> bool:
    common = min(len(one), len(other))
    return one[:common] == other[:common]
