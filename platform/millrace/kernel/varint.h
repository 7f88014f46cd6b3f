/* Zig-zag variable-length integers, as records v2 have them: `millrace.records.varint` in C. */
#ifndef MILLRACE_VARINT_H
#define MILLRACE_VARINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VARINT_LAST_SHIFT = 63 };

typedef struct {
    const uint8_t *at, *end;
} cursor_t;

static inline size_t cursor_left(const cursor_t *cursor) {
    return (size_t)(cursor->end - cursor->at);
}

static inline int64_t unzigzag(uint64_t zigzag) {
    return (int64_t)(zigzag >> 1) ^ -(int64_t)(zigzag & 1);
}

/* False where it is cut short or longer than 64 bits. */
static inline bool read_varint(cursor_t *cursor, int64_t *value) {
    if (cursor->at < cursor->end && *cursor->at < 0x80) {
        *value = unzigzag(*cursor->at++);
        return true;
    }
    uint64_t zigzag = 0;
    for (int shift = 0; cursor->at < cursor->end; shift += 7) {
        uint8_t octet = *cursor->at++;
        if (shift == VARINT_LAST_SHIFT && octet > 1)
            return false;
        zigzag |= (uint64_t)(octet & 0x7F) << shift;
        if (octet < 0x80) {
            *value = unzigzag(zigzag);
            return true;
        }
    }
    return false;
}

#endif
