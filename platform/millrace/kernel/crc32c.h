/* CRC-32C (RFC 3720), which v2 batches carry: by the carry-less multiplication of 64 bytes at a time that processors with
   VPCLMULQDQ and AVX-512 have, or else by the instruction for it that those with SSE 4.2 have. */
#ifndef MILLRACE_CRC32C_H
#define MILLRACE_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether this processor can do it, and the compiler could; to be called once, before the first crc32c_of. */
bool crc32c_prepare(void);
/* Whether it folds, at a higher rate than the instruction for the CRC has. */
bool crc32c_folds(void);
/* The CRC of what came before, taken on over these bytes; 0 where nothing came. */
uint32_t crc32c_of(const uint8_t *at, size_t size, uint32_t crc);

#endif
