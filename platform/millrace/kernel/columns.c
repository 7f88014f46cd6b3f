#include "columns.h"

enum { NO_TIMESTAMP = -1, MICROSECONDS = 1000 };

static const int64_t FIRST_TIMESTAMP = -62135596800000, LAST_TIMESTAMP = 253402300799999; /* the years 1 to 9999 */

/* A bit for each row, none of them set; its size is set at the end. */
static bool bitmap_open(memory_t *bitmap, size_t rows) {
    size_t size = rows / 8 + 1;
    bitmap->data = calloc(size, 1);
    bitmap->capacity = size;
    return bitmap->data != NULL;
}

static bool binary_open(binary_t *binary, size_t rows, size_t size_bytes) {
    int32_t first = 0;
    return bitmap_open(&binary->validity, rows) && memory_reserve(&binary->offsets, (rows + 1) * sizeof first) &&
           memory_append(&binary->offsets, &first, sizeof first) && memory_reserve(&binary->data, size_bytes);
}

static void binary_close(binary_t *binary) {
    memory_free(&binary->validity);
    memory_free(&binary->offsets);
    memory_free(&binary->data);
}

bool columns_open(columns_t *columns, size_t records, size_t size_bytes) {
    int32_t first = 0;
    *columns = (columns_t){0};
    return memory_reserve(&columns->offsets, records * sizeof(int64_t)) &&
           memory_reserve(&columns->timestamps, records * sizeof(int64_t)) &&
           bitmap_open(&columns->timestamp_validity, records) && binary_open(&columns->keys, records, 0) &&
           binary_open(&columns->values, records, size_bytes) &&
           memory_reserve(&columns->header_offsets, (records + 1) * sizeof first) &&
           memory_append(&columns->header_offsets, &first, sizeof first) &&
           binary_open(&columns->header_keys, 0, 0) && binary_open(&columns->header_values, 0, 0);
}

void columns_close(columns_t *columns) {
    memory_free(&columns->offsets);
    memory_free(&columns->timestamps);
    memory_free(&columns->timestamp_validity);
    binary_close(&columns->keys);
    binary_close(&columns->values);
    memory_free(&columns->header_offsets);
    binary_close(&columns->header_keys);
    binary_close(&columns->header_values);
}

static inline void set_valid(memory_t *bitmap, int64_t row) {
    bitmap->data[row >> 3] |= (uint8_t)(1u << (row & 7));
}

/* The column has room for the row's offset and bit, and makes room for its bytes. */
static inline bool binary_append(binary_t *binary, field_t field) {
    if (field.data == NULL)
        binary->nulls++;
    else
        set_valid(&binary->validity, binary->rows);
    if (!memory_append(&binary->data, field.data, field.size))
        return false;
    int32_t end = (int32_t)binary->data.size; /* below 2 GiB: no more than all bodies together */
    memory_put(&binary->offsets, &end, sizeof end);
    binary->rows++;
    return true;
}

/* As above for a column whose number of rows is not known beforehand. */
static bool binary_append_grown(binary_t *binary, field_t field) {
    memory_t *bitmap = &binary->validity;
    size_t octet = (size_t)binary->rows / 8;
    if (octet >= bitmap->capacity) {
        size_t before = bitmap->capacity;
        bitmap->size = before;
        if (!memory_reserve(bitmap, 1))
            return false;
        memset(bitmap->data + before, 0, bitmap->capacity - before);
    }
    return memory_reserve(&binary->offsets, sizeof(int32_t)) && binary_append(binary, field);
}

bool append_header(columns_t *columns, field_t key, field_t value) {
    return binary_append_grown(&columns->header_keys, key) && binary_append_grown(&columns->header_values, value);
}

static inline void append_timestamp(columns_t *columns, const record_t *record) {
    int64_t milliseconds = record->timestamp_ms, number = milliseconds;
    if (!record->has_timestamp || milliseconds == NO_TIMESTAMP || milliseconds > LAST_TIMESTAMP ||
        milliseconds < FIRST_TIMESTAMP)
        columns->timestamp_nulls++;
    else {
        number = milliseconds * MICROSECONDS;
        set_valid(&columns->timestamp_validity, columns->rows);
    }
    memory_put(&columns->timestamps, &number, sizeof number);
}

bool append_record(columns_t *columns, const record_t *record) {
    int32_t headers_end = (int32_t)columns->header_keys.rows;
    append_timestamp(columns, record);
    memory_put(&columns->offsets, &record->offset, sizeof record->offset);
    memory_put(&columns->header_offsets, &headers_end, sizeof headers_end);
    columns->rows++;
    return binary_append(&columns->keys, record->key) && binary_append(&columns->values, record->value);
}
