#include "valid_batch.h"

#include "crc32c.h"
#include "record_check.h"

/* Where the fields of a header lie, which are big-endian. */
enum {
    LENGTH_POSITION = 8,
    MAGIC_POSITION = 16,
    CRC_POSITION = 17,
    ATTRIBUTES_POSITION = 21,
    LAST_OFFSET_DELTA_POSITION = 23,
    BASE_TIMESTAMP_POSITION = 27,
    MAX_TIMESTAMP_POSITION = 35,
    PRODUCER_ID_POSITION = 43,
    PRODUCER_EPOCH_POSITION = 51,
    BASE_SEQUENCE_POSITION = 53,
    RECORD_COUNT_POSITION = 57,
    HEADER_BYTES = 61,
};

enum { MAGIC_V2 = 2, LOG_OVERHEAD_BYTES = 12, NO_PRODUCER_ID = -1 };
/* Codec, time of the log, control batch. A transaction needs a producer. */
enum { CODEC_AND_RARE_FLAGS = 0x07 | 0x08 | 0x20, TRANSACTIONAL_FLAG = 0x10 };

static inline uint64_t read_big_endian(const uint8_t *at, int size) {
    uint64_t value = 0;
    for (int place = 0; place < size; place++)
        value = value << 8 | at[place];
    return value;
}

static inline int64_t read_int64(const uint8_t *data, int position) {
    return (int64_t)read_big_endian(data + position, 8);
}

static inline int32_t read_int32(const uint8_t *data, int position) {
    return (int32_t)(uint32_t)read_big_endian(data + position, 4);
}

static inline bool has_right_producer(const uint8_t *data, int attributes) {
    int64_t producer_id = read_int64(data, PRODUCER_ID_POSITION);
    if (producer_id == NO_PRODUCER_ID)
        return !(attributes & TRANSACTIONAL_FLAG);
    int16_t epoch = (int16_t)(uint16_t)read_big_endian(data + PRODUCER_EPOCH_POSITION, 2);
    return producer_id >= 0 && epoch >= 0 && read_int32(data, BASE_SEQUENCE_POSITION) >= 0;
}

static bool has_right_header(const uint8_t *data, size_t size) {
    if (size < HEADER_BYTES || data[MAGIC_POSITION] != MAGIC_V2)
        return false;
    int attributes = data[ATTRIBUTES_POSITION + 1];
    int64_t count = read_int32(data, RECORD_COUNT_POSITION);
    return (int64_t)read_int32(data, LENGTH_POSITION) + LOG_OVERHEAD_BYTES == (int64_t)size &&
           !(attributes & CODEC_AND_RARE_FLAGS) && count > 0 &&
           count == (int64_t)read_int32(data, LAST_OFFSET_DELTA_POSITION) + 1 && has_right_producer(data, attributes);
}

static bool has_right_records(const uint8_t *data, size_t size) {
    record_rules_t rules = {
        .record_count = read_int32(data, RECORD_COUNT_POSITION),
        .base_timestamp = read_int64(data, BASE_TIMESTAMP_POSITION),
        .earliest = INT64_MIN,
        .latest = INT64_MAX,
    };
    record_check_t check;
    record_check_open(&check, &rules); /* refuses no record, so there is nothing to close */
    return record_check_feed(&check, data + HEADER_BYTES, size - HEADER_BYTES) && record_check_end(&check) &&
           check.max_timestamp == read_int64(data, MAX_TIMESTAMP_POSITION);
}

bool is_valid_batch(const uint8_t *data, size_t size) {
    return has_right_header(data, size) &&
           crc32c_of(data + ATTRIBUTES_POSITION, size - ATTRIBUTES_POSITION, 0) ==
               (uint32_t)read_int32(data, CRC_POSITION) &&
           has_right_records(data, size);
}
