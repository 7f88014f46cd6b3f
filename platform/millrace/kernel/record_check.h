/* Whether the bytes of a produced batch are the records that its header counts (`millrace.records.record_check`).

   The bytes come in chunks that may be cut anywhere. Nothing of them is kept: a block that grows without end takes no
   memory. */
#ifndef MILLRACE_RECORD_CHECK_H
#define MILLRACE_RECORD_CHECK_H

#include "memory.h"
#include "varint.h"

/* Of more refused records no more are named. */
enum { REFUSED_MAX = 10000 };

typedef struct {
    int64_t record_count, base_timestamp;
    bool needs_keys;
    int64_t earliest, latest; /* what a timestamp may be, besides -1 */
} record_rules_t;

/* A record that breaks a rule of its topic: by its timestamp, unless it has no key. */
typedef struct {
    int64_t index, timestamp;
    bool has_key;
} refused_t;

/* What of a record comes next. */
typedef enum {
    NEXT_LENGTH,
    NEXT_ATTRIBUTES,
    NEXT_TIMESTAMP,
    NEXT_OFFSET,
    NEXT_KEY_LENGTH,
    NEXT_KEY,
    NEXT_VALUE_LENGTH,
    NEXT_VALUE,
    NEXT_HEADER_COUNT,
    NEXT_HEADER_KEY_LENGTH,
    NEXT_HEADER_KEY,
    NEXT_HEADER_VALUE_LENGTH,
    NEXT_HEADER_VALUE,
} record_part_t;

typedef struct {
    record_rules_t rules;
    int64_t index;         /* of the record at hand: how many are whole */
    int64_t max_timestamp; /* of all so far, and -1 at least */
    memory_t refused;
    bool lacks_memory;
    const char *what; /* why the bytes are not these records */
    int64_t position; /* where the chunk ends, or where the bytes are wrong */

    record_part_t next;
    int64_t record_end, timestamp, headers; /* of the record at hand; headers that are still to come */
    int64_t skipping;                       /* how much of a field is still to come */
    uint64_t zigzag;                        /* a number that goes on in the next chunk */
    int shift;
} record_check_t;

void record_check_open(record_check_t *check, const record_rules_t *rules);
void record_check_close(record_check_t *check);
/* Goes through a chunk; false for bytes that can't be, with `what` set, or where memory ran out. */
bool record_check_feed(record_check_t *check, const uint8_t *data, size_t size);
/* To be called behind the last chunk: whether all records are there; false with `what` set. */
bool record_check_end(record_check_t *check);

#endif
