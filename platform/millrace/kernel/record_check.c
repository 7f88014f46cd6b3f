#include "record_check.h"

enum { NULL_LENGTH = -1, NO_TIMESTAMP = -1, MIN_HEADER_BYTES = 2, INT_LAST_SHIFT = 28 };
enum { SHORT_NUMBER_BYTES = 3, PLAIN_HEAD_BYTES = 3 * SHORT_NUMBER_BYTES + 1 };

/* What is left of a chunk. */
typedef struct {
    cursor_t cursor;
    int64_t end; /* its position in the batch */
} chunk_t;

static inline int64_t position_of(const chunk_t *chunk) {
    return chunk->end - (chunk->cursor.end - chunk->cursor.at);
}

static bool fail(record_check_t *check, const chunk_t *chunk, const char *what) {
    check->what = what;
    check->position = position_of(chunk);
    return false;
}

static bool read_long_number(record_check_t *check, chunk_t *chunk, int64_t *number, int last_shift) {
    cursor_t *cursor = &chunk->cursor;
    while (cursor->at < cursor->end) {
        uint8_t octet = *cursor->at++;
        if (check->shift > last_shift || (check->shift == VARINT_LAST_SHIFT && octet > 1))
            return fail(check, chunk, "a number is too long");
        check->zigzag |= (uint64_t)(octet & 0x7F) << check->shift;
        check->shift += 7;
        if (octet < 0x80) {
            *number = unzigzag(check->zigzag);
            check->zigzag = 0;
            check->shift = 0;
            return true;
        }
    }
    return false;
}

/* The next number; false where it goes on in the next chunk, or with `what` set. */
static inline bool read_number(record_check_t *check, chunk_t *chunk, int64_t *number, int last_shift) {
    cursor_t *cursor = &chunk->cursor;
    if (check->shift > 0 || cursor->at == cursor->end || *cursor->at >= 0x80)
        return read_long_number(check, chunk, number, last_shift);
    *number = unzigzag(*cursor->at++);
    return true;
}

static inline bool read_length(record_check_t *check, chunk_t *chunk, int64_t *length, int64_t least) {
    if (!read_number(check, chunk, length, INT_LAST_SHIFT))
        return false;
    if (*length < least || *length > check->record_end - position_of(chunk))
        return fail(check, chunk, "a field's length is negative, or runs over its record");
    check->skipping = *length > 0 ? *length : 0;
    return true;
}

/* Past a field; false where it goes on in the next chunk. */
static inline bool skip(record_check_t *check, chunk_t *chunk) {
    int64_t left = chunk->cursor.end - chunk->cursor.at;
    int64_t skipped = check->skipping < left ? check->skipping : left;
    chunk->cursor.at += skipped;
    check->skipping -= skipped;
    return check->skipping == 0;
}

static inline bool begin_record(record_check_t *check, chunk_t *chunk) {
    int64_t length;
    if (check->index == check->rules.record_count && chunk->cursor.at < chunk->cursor.end)
        return fail(check, chunk, "bytes follow the last record that the header counts");
    if (!read_number(check, chunk, &length, INT_LAST_SHIFT))
        return false;
    check->record_end = position_of(chunk) + length;
    return length >= 0 || fail(check, chunk, "a record's length is negative");
}

/* One that leaves 64 bits is the last one within. */
static inline int64_t timestamp_of(const record_check_t *check, int64_t delta) {
    int64_t timestamp;
    if (__builtin_add_overflow(check->rules.base_timestamp, delta, &timestamp))
        timestamp = delta < 0 ? INT64_MIN : INT64_MAX;
    return timestamp;
}

static inline bool is_refused(const record_rules_t *rules, int64_t timestamp, bool has_key) {
    bool is_timely = (rules->earliest <= timestamp && timestamp <= rules->latest) || timestamp == NO_TIMESTAMP;
    return !is_timely || (rules->needs_keys && !has_key);
}

static inline bool read_timestamp(record_check_t *check, chunk_t *chunk) {
    int64_t delta;
    if (!read_number(check, chunk, &delta, VARINT_LAST_SHIFT))
        return false;
    check->timestamp = timestamp_of(check, delta);
    if (check->timestamp > check->max_timestamp)
        check->max_timestamp = check->timestamp;
    return true;
}

static inline bool read_offset(record_check_t *check, chunk_t *chunk) {
    int64_t delta;
    return read_number(check, chunk, &delta, INT_LAST_SHIFT) &&
           (delta == check->index || fail(check, chunk, "an offset delta is not the record's place in the batch"));
}

static bool refuse(record_check_t *check, bool has_key) {
    refused_t refused = {check->index, check->timestamp, has_key};
    if (check->refused.size < REFUSED_MAX * sizeof refused)
        check->lacks_memory = !memory_append(&check->refused, &refused, sizeof refused);
    return !check->lacks_memory;
}

static inline bool read_key_length(record_check_t *check, chunk_t *chunk) {
    int64_t length;
    if (!read_length(check, chunk, &length, NULL_LENGTH))
        return false;
    bool has_key = length != NULL_LENGTH || !check->rules.needs_keys;
    return !is_refused(&check->rules, check->timestamp, has_key) || refuse(check, has_key);
}

/* The record is whole where it has no more headers. */
static inline bool end_header(record_check_t *check, const chunk_t *chunk) {
    check->next = NEXT_HEADER_KEY_LENGTH;
    if (check->headers > 0)
        return true;
    if (position_of(chunk) != check->record_end)
        return fail(check, chunk, "a record's fields end where its length does not say");
    check->index++;
    check->next = NEXT_LENGTH;
    return true;
}

static inline bool read_header_count(record_check_t *check, chunk_t *chunk) {
    if (!read_number(check, chunk, &check->headers, INT_LAST_SHIFT))
        return false;
    if (check->headers < 0 || MIN_HEADER_BYTES * check->headers > check->record_end - position_of(chunk))
        return fail(check, chunk, "a record can't have so many headers");
    return end_header(check, chunk);
}

static inline bool end_header_value(record_check_t *check, chunk_t *chunk) {
    if (!skip(check, chunk))
        return false;
    check->headers--;
    return end_header(check, chunk);
}

/* Attributes, of which none is defined. */
static inline bool skip_attributes(chunk_t *chunk) {
    if (chunk->cursor.at == chunk->cursor.end)
        return false;
    chunk->cursor.at++;
    return true;
}

/* One part of a record; false where it goes on in the next chunk, or as `record_check_feed` returns false. */
static inline bool read_part(record_check_t *check, chunk_t *chunk, record_part_t part) {
    int64_t length;
    check->next = part + 1;
    switch (part) {
    case NEXT_LENGTH:
        return begin_record(check, chunk);
    case NEXT_ATTRIBUTES:
        return skip_attributes(chunk);
    case NEXT_TIMESTAMP:
        return read_timestamp(check, chunk);
    case NEXT_OFFSET:
        return read_offset(check, chunk);
    case NEXT_KEY_LENGTH:
        return read_key_length(check, chunk);
    case NEXT_VALUE_LENGTH:
    case NEXT_HEADER_VALUE_LENGTH:
        return read_length(check, chunk, &length, NULL_LENGTH);
    case NEXT_HEADER_COUNT:
        return read_header_count(check, chunk);
    case NEXT_HEADER_KEY_LENGTH:
        return read_length(check, chunk, &length, 0);
    case NEXT_HEADER_VALUE:
        return end_header_value(check, chunk);
    default:
        return skip(check, chunk);
    }
}

void record_check_open(record_check_t *check, const record_rules_t *rules) {
    *check = (record_check_t){.rules = *rules, .max_timestamp = NO_TIMESTAMP};
}

void record_check_close(record_check_t *check) {
    memory_free(&check->refused);
}

/* A number of up to three bytes, all of which can be read; longer ones are left to `read_number`. */
static inline bool read_short_number(const uint8_t **at, int32_t *number) {
    const uint8_t *octets = *at;
    uint32_t zigzag = octets[0];
    *at += 1;
    if (zigzag >= 0x80) {
        zigzag = (zigzag & 0x7F) | (uint32_t)octets[1] << 7;
        *at += 1;
        if (octets[1] >= 0x80) {
            zigzag = (zigzag & 0x3FFF) | (uint32_t)octets[2] << 14;
            *at += 1;
            if (octets[2] >= 0x80)
                return false;
        }
    }
    *number = (int32_t)(zigzag >> 1) ^ -(int32_t)(zigzag & 1);
    return true;
}

/* Past records as nearly all are: whole in the chunk, of short numbers, without headers, and not refused. Any other is
   left to be read part by part. */
static void skip_plain_records(record_check_t *check, cursor_t *cursor) {
    const record_rules_t rules = check->rules;
    const bool has_rules = rules.needs_keys || rules.earliest > INT64_MIN || rules.latest < INT64_MAX;
    const uint8_t *at = cursor->at, *end = cursor->end;
    int64_t index = check->index;
    int32_t length, delta, offset_delta, key_length, value_length, largest = INT32_MIN;
    for (; index < rules.record_count && end - at >= PLAIN_HEAD_BYTES; index++) {
        if (!read_short_number(&at, &length) || length > end - at)
            break;
        const uint8_t *value_end = at + length - 1; /* the count of headers */
        at++;                                       /* attributes */
        if (!read_short_number(&at, &delta) || !read_short_number(&at, &offset_delta) || offset_delta != index ||
            !read_short_number(&at, &key_length) || key_length < NULL_LENGTH || key_length > value_end - at)
            break;
        at += key_length > 0 ? key_length : 0;
        if (end - at < SHORT_NUMBER_BYTES || !read_short_number(&at, &value_length) || value_length < NULL_LENGTH ||
            at + (value_length > 0 ? value_length : 0) != value_end || *value_end != 0)
            break;
        if (has_rules && is_refused(&rules, timestamp_of(check, delta), key_length != NULL_LENGTH))
            break;
        largest = delta > largest ? delta : largest;
        cursor->at = at = value_end + 1;
    }
    if (index > check->index && timestamp_of(check, largest) > check->max_timestamp)
        check->max_timestamp = timestamp_of(check, largest);
    check->index = index;
}

bool record_check_feed(record_check_t *check, const uint8_t *data, size_t size) {
    chunk_t chunk = {{data, data + size}, check->position + (int64_t)size};
    record_part_t part;
    do {
        if (check->next == NEXT_LENGTH && check->shift == 0)
            skip_plain_records(check, &chunk.cursor);
        part = check->next;
    } while (read_part(check, &chunk, part));
    if (check->what != NULL || check->lacks_memory)
        return false;
    check->next = part;
    check->position = chunk.end;
    return true;
}

bool record_check_end(record_check_t *check) {
    if (check->index == check->rules.record_count)
        return true;
    check->what = "the bytes end before the last record that the header counts";
    return false;
}
