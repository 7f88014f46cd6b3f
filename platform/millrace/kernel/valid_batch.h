/* Produced batches as nearly all are: those that a leader has nothing to object to, found without a look from Python. */
#ifndef MILLRACE_VALID_BATCH_H
#define MILLRACE_VALID_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the bytes are one batch of v2 without a codec that keeps every rule of `storage.batches`: its size, its flags,
   its producer, its CRC, its records and the largest of their times. Needs `crc32c_prepare` to have returned true. */
bool is_valid_batch(const uint8_t *data, size_t size);

#endif
