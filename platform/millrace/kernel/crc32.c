#include "crc32.h"

enum { STRIDE = 8 };

static const uint32_t POLYNOMIAL = 0xEDB88320u;

/* table[k][octet]: what the octet does to the CRC when k zero octets follow it. */
static uint32_t table[STRIDE][256];

void crc32_prepare(void) {
    for (uint32_t octet = 0; octet < 256; octet++) {
        uint32_t crc = octet;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        table[0][octet] = crc;
    }
    for (int follow = 1; follow < STRIDE; follow++)
        for (int octet = 0; octet < 256; octet++)
            table[follow][octet] = table[follow - 1][octet] >> 8 ^ table[0][table[follow - 1][octet] & 0xFF];
}

uint32_t crc32_of(const uint8_t *at, size_t size) {
    uint32_t crc = ~0u;
    for (; size >= STRIDE; at += STRIDE, size -= STRIDE)
        crc = table[7][at[0] ^ (crc & 0xFF)] ^ table[6][at[1] ^ (crc >> 8 & 0xFF)] ^
              table[5][at[2] ^ (crc >> 16 & 0xFF)] ^ table[4][at[3] ^ crc >> 24] ^ table[3][at[4]] ^
              table[2][at[5]] ^ table[1][at[6]] ^ table[0][at[7]];
    for (; size > 0; at++, size--)
        crc = crc >> 8 ^ table[0][(crc ^ *at) & 0xFF];
    return ~crc;
}
