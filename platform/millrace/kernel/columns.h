/* Records as the buffers of Arrow columns: what every format is decoded into. Knows nothing of Python. */
#ifndef MILLRACE_COLUMNS_H
#define MILLRACE_COLUMNS_H

#include "memory.h"

/* An Arrow binary column. */
typedef struct {
    memory_t validity, offsets, data;
    int64_t nulls, rows;
} binary_t;

typedef struct {
    memory_t offsets;
    memory_t timestamps, timestamp_validity; /* microseconds; in the place of a null the record's milliseconds */
    int64_t timestamp_nulls;
    binary_t keys, values;
    memory_t header_offsets; /* of the list column: where the headers of a row begin */
    binary_t header_keys, header_values;
    int64_t rows;
} columns_t;

/* A record before it is appended. */
typedef struct {
    const uint8_t *data; /* NULL: null */
    size_t size;
} field_t;

typedef struct {
    int64_t offset, timestamp_ms;
    bool has_timestamp; /* false: it lies beyond 64 bits, of which timestamp_ms has the lower ones */
    field_t key, value;
} record_t;

/* from <= offset < until */
typedef struct {
    int64_t from, until;
} range_t;

typedef enum { FAULT_CORRUPT, FAULT_INVALID, FAULT_MAGIC, FAULT_CODEC } fault_kind_t;

/* Why bytes are no records, and where in the body. */
typedef struct {
    const char *what; /* NULL: memory ran out */
    size_t position;
    fault_kind_t kind;
} fault_t;

static inline bool in_range(range_t range, int64_t offset) {
    return range.from <= offset && offset < range.until;
}

/* Room for `records` rows and values of `size_bytes`; false where there is none. What is not used costs no memory. */
bool columns_open(columns_t *columns, size_t records, size_t size_bytes);
void columns_close(columns_t *columns);

/* A header of the record that is appended next; makes room for itself. */
bool append_header(columns_t *columns, field_t key, field_t value);
bool append_record(columns_t *columns, const record_t *record);

#endif
