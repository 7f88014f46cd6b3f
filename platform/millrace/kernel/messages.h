/* Message sets of v0 and v1 (`millrace.records.message_set` draws them) into columns. */
#ifndef MILLRACE_MESSAGES_H
#define MILLRACE_MESSAGES_H

#include "columns.h"

enum { NO_WRAPPER = -1 };

/* Messages without a codec: a stretch of a log, or what was in a wrapper, decompressed. */
typedef struct {
    const uint8_t *data;
    size_t size;
    int magic; /* of the wrapper, or NO_WRAPPER; what follows is of the wrapper too */
    int64_t offset, timestamp;
    bool same_timestamp; /* the wrapper's timestamp is that of every message: log append time */
} messages_t;

/* Fewest bytes of an entry: offset, size, CRC, magic, attributes and two lengths. */
enum { MIN_ENTRY_BYTES = 26 };

/* Appends the records of the range, for which there is room; all are checked. */
bool decode_messages(columns_t *columns, const messages_t *messages, range_t range, fault_t *fault);

#endif
