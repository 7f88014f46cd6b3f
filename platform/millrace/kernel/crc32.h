/* CRC-32 of RFC 1952, eight bytes at a time; zlib's own is not at hand everywhere. */
#ifndef MILLRACE_CRC32_H
#define MILLRACE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* To be called once, before the first crc32_of. */
void crc32_prepare(void);
uint32_t crc32_of(const uint8_t *at, size_t size);

#endif
