/* CRC-32C (RFC 3720), which v2 batches carry, by the carry-less multiplication of 64 bytes at a time that processors with
   VPCLMULQDQ and AVX-512 have. */
#ifndef MILLRACE_CRC32C_H
#define MILLRACE_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether this processor can do it, and the compiler could; to be called once, before the first crc32c_of. */
bool crc32c_prepare(void);
/* The CRC of what came before, taken on over these bytes; 0 where nothing came. */
uint32_t crc32c_of(const uint8_t *at, size_t size, uint32_t crc);

#endif
