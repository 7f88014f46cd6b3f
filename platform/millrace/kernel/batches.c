#include "batches.h"

enum { NULL_LENGTH = -1, MIN_HEADER_BYTES = 2 };

static inline bool read_field(cursor_t *cursor, field_t *field, const char **what) {
    int64_t length;
    if (!read_varint(cursor, &length))
        *what = "a field's length is cut short or longer than 64 bits";
    else if (length == NULL_LENGTH)
        *field = (field_t){NULL, 0};
    else if (length < 0 || (uint64_t)length > cursor_left(cursor))
        *what = "a field runs over its record";
    else {
        *field = (field_t){cursor->at, (size_t)length};
        cursor->at += length;
    }
    return *what == NULL;
}

bool read_header(cursor_t *cursor, field_t *key, field_t *value, const char **what) {
    return read_field(cursor, key, what) && read_field(cursor, value, what);
}

/* What lies between the cursor and its end: no more than one record, and no less. `found` is the record before it. */
static inline bool read_fields(const batch_t *batch, cursor_t *cursor, batch_record_t *found, const char **what) {
    if (cursor_left(cursor) == 0) {
        *what = "a record is empty";
        return false;
    }
    cursor->at++; /* attributes, of which none is defined */
    int64_t offset_delta;
    if (!read_varint(cursor, &found->timestamp_delta) || !read_varint(cursor, &offset_delta)) {
        *what = "a delta is cut short or longer than 64 bits";
        return false;
    }
    if (offset_delta < 0 || offset_delta > batch->last_offset_delta) {
        *what = "an offset is outside of its batch";
        return false;
    }
    if (offset_delta <= found->offset_delta) {
        *what = "an offset does not follow the one before";
        return false;
    }
    found->offset_delta = offset_delta;
    if (!read_field(cursor, &found->record.key, what) || !read_field(cursor, &found->record.value, what))
        return false;
    if (!read_varint(cursor, &found->header_count) || found->header_count < 0 ||
        (uint64_t)found->header_count > cursor_left(cursor) / MIN_HEADER_BYTES) {
        *what = "a header count can't be";
        return false;
    }
    found->headers = *cursor;
    for (int64_t index = 0; index < found->header_count; index++) {
        field_t key, value;
        if (!read_header(cursor, &key, &value, what))
            return false;
    }
    if (cursor_left(cursor) > 0)
        *what = "a record's fields end before its length says";
    return *what == NULL;
}

bool read_record(const batch_t *batch, cursor_t *cursor, batch_record_t *found, fault_t *fault) {
    int64_t length;
    fault->position = batch->size - cursor_left(cursor);
    if (!read_varint(cursor, &length) || length < 0 || (uint64_t)length > cursor_left(cursor)) {
        fault->what = "a record's length is cut short, negative or more than there is";
        return false;
    }
    cursor_t record = {cursor->at, cursor->at + length};
    cursor->at += length;
    return read_fields(batch, &record, found, &fault->what);
}

bool check_end(const batch_t *batch, const cursor_t *cursor, fault_t *fault) {
    fault->position = batch->size - cursor_left(cursor);
    if (cursor_left(cursor) > 0)
        fault->what = "bytes follow the last record that the header counts";
    return fault->what == NULL;
}

static inline bool append(columns_t *columns, batch_record_t *found, fault_t *fault) {
    for (int64_t index = 0; index < found->header_count; index++) {
        field_t key, value;
        if (!read_header(&found->headers, &key, &value, &fault->what) || !append_header(columns, key, value))
            return false;
    }
    return append_record(columns, &found->record);
}

bool decode_batch(columns_t *columns, const batch_t *batch, range_t range, fault_t *fault) {
    cursor_t cursor = {batch->data, batch->data + batch->size};
    batch_record_t found = BEFORE_FIRST;
    for (int32_t index = 0; index < batch->record_count; index++) {
        if (!read_record(batch, &cursor, &found, fault))
            return false;
        record_t *record = &found.record;
        if (__builtin_add_overflow(batch->base_offset, found.offset_delta, &record->offset)) {
            fault->what = "an offset is beyond 64 bits";
            return false;
        }
        if (batch->same_timestamp)
            found.timestamp_delta = 0;
        record->has_timestamp =
            !__builtin_add_overflow(batch->base_timestamp, found.timestamp_delta, &record->timestamp_ms);
        if (in_range(range, record->offset) && !append(columns, &found, fault))
            return false;
    }
    return check_end(batch, &cursor, fault);
}
