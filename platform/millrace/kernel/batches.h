/* The record bytes of v2 batches (`millrace.records.record` draws them) into columns. */
#ifndef MILLRACE_BATCHES_H
#define MILLRACE_BATCHES_H

#include "columns.h"
#include "varint.h"

/* The records of one batch, decompressed, and what its header says of them. */
typedef struct {
    const uint8_t *data;
    size_t size;
    int64_t base_offset, base_timestamp;
    int32_t last_offset_delta, record_count;
    bool same_timestamp; /* the base timestamp is that of every record: log append time */
} batch_t;

/* Fewest bytes of a record: length, attributes, two deltas, two lengths and the count of headers. */
enum { MIN_RECORD_BYTES = 7 };

/* A record as it lies in the batch, all of it checked; its headers are still to be read. */
typedef struct {
    record_t record;
    int64_t offset_delta, timestamp_delta, header_count;
    cursor_t headers;
} batch_record_t;

/* Stands for the record before the first one. */
#define BEFORE_FIRST ((batch_record_t){.offset_delta = -1})

/* The record that the cursor stands before, which moves behind it; `found` has the one before, or BEFORE_FIRST. */
bool read_record(const batch_t *batch, cursor_t *cursor, batch_record_t *found, fault_t *fault);
/* The header that the cursor stands before. Its key may be null, or bytes that are no text. */
bool read_header(cursor_t *cursor, field_t *key, field_t *value, const char **what);
/* Whether all records are read and nothing follows. */
bool check_end(const batch_t *batch, const cursor_t *cursor, fault_t *fault);

/* Appends the records of the range, for which there is room; all are checked. */
bool decode_batch(columns_t *columns, const batch_t *batch, range_t range, fault_t *fault);

#endif
