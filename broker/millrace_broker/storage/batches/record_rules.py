"""What a topic asks of each produced record, and how those are told that it refuses (KIP-467).

| rule | error |
|---|---|
| in a compacted topic every record has a key | RejectedRecordsError |
| with CreateTime, every time lies within message.timestamp.before.max.ms and .after.max.ms | InvalidTimestampError |
"""

from __future__ import annotations

from millrace.config import MAX_LONG
from millrace.errors import InvalidTimestampError, RejectedRecordsError
from millrace.records.record_check import NO_RULES, RecordRules, Refused
from millrace_broker.storage.config import CREATE_TIME, LogConfig

NO_KEY = "Compacted topic cannot accept message without key"


def asks_of_records(config: LogConfig) -> bool:
    """Returns whether a topic asks anything of its records."""
    limited = min(config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) < MAX_LONG
    return config.is_compacted or (limited and config.message_timestamp_type == CREATE_TIME)


def rules_of(config: LogConfig, now_ms: int) -> RecordRules:
    """Returns what a topic asks at this time."""
    if config.message_timestamp_type != CREATE_TIME:
        return RecordRules(config.is_compacted)
    before_ms, after_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    earliest = NO_RULES.earliest if before_ms == MAX_LONG else max(now_ms - before_ms, NO_RULES.earliest)
    return RecordRules(config.is_compacted, earliest, min(now_ms + after_ms, NO_RULES.latest))


def check_refused(refused: Refused, rules: RecordRules) -> None:
    """Raises InvalidTimestampError or RejectedRecordsError, which name each record, where any is refused."""
    if not refused:
        return
    errors = tuple((index, NO_KEY if time is None else _untimely(time, rules)) for index, time in refused)
    for index, time in refused:
        if time is not None:
            raise InvalidTimestampError(
                f"record {index}: {_untimely(time, rules)}, and its topic limits the difference", errors
            )
    raise RejectedRecordsError(f"record {refused[0][0]} has no key, and the topic is compacted by key", errors)


def _untimely(timestamp: int, rules: RecordRules) -> str:
    return f"timestamp {timestamp} is not in {rules.earliest}..{rules.latest}"
