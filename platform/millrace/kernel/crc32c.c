#include "crc32c.h"

/* Bytes are a polynomial over GF(2), the first bit its highest power, and the CRC is what remains of it, times x^32, after
   division by P; what has the same remainder has the same CRC. 128 bits, a high half and a low one, that lie `distance`
   bits before 128 others stand for

       high * x^(distance + 64)  +  low * x^distance,

   and the remainder stays when a power is replaced by its own remainder, of 32 bits. Then the products have 96 bits, and
   are added to those others: the first 128 are folded onto them. So all bytes are folded onto the last 256, whose CRC the
   processor's instruction for it computes. Its value before is added to the first 32 bits, and as everywhere it is inverted
   before and after. (V. Gopal and others, Fast CRC Computation for Generic Polynomials Using PCLMULQDQ, Intel 2009.)

   A processor that multiplies 64 bits at a time, and no more, folds too slowly. There the instruction for the CRC does
   all: it can be begun three times before it has ended once, so three blocks are gone through side by side, and their
   CRCs are brought together as above: that of a block is multiplied by x^(bits behind it). */

#if defined(__x86_64__) && defined(__linux__) && (__GNUC__ >= 9 || __clang_major__ >= 9)

#include <immintrin.h>

#define INTERLEAVING __attribute__((target("sse4.2,pclmul")))
#define FOLDING __attribute__((target("avx512f,vpclmulqdq,sse4.2")))

enum { VECTOR_BYTES = 64, STRIDE_BYTES = 4 * VECTOR_BYTES, STRIDE_BITS = 8 * STRIDE_BYTES };
enum { BLOCK_BYTES = 256, BLOCK_BITS = 8 * BLOCK_BYTES, BLOCKS = 3 };

/* The highest bit of a number is its lowest power. */
static const uint32_t POLYNOMIAL = 0x82F63B78u;

/* What takes the place of the two powers; the high half comes first in memory. */
static uint64_t factors[2];
/* What a CRC is multiplied by for one block behind it, and for two. */
static uint64_t past_one, past_two;
static bool folds;

/* The remainder of x^power. */
static uint32_t power_of_x(int power) {
    uint32_t remainder = 1u << 31;
    for (; power > 0; power--)
        remainder = remainder >> 1 ^ (remainder & 1 ? POLYNOMIAL : 0);
    return remainder;
}

bool crc32c_prepare(void) {
    /* With bits in this order a product of 64 bits by 32 comes out x^33 too large. */
    enum { EXCESS = 33 };
    factors[0] = power_of_x(STRIDE_BITS + 64 - EXCESS);
    factors[1] = power_of_x(STRIDE_BITS - EXCESS);
    past_one = power_of_x(BLOCK_BITS - EXCESS);
    past_two = power_of_x(2 * BLOCK_BITS - EXCESS);
    folds = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2");
}

INTERLEAVING static uint32_t by_words(const uint8_t *at, size_t size, uint32_t crc) {
    uint64_t word;
    for (; size >= sizeof word; at += sizeof word, size -= sizeof word) {
        __builtin_memcpy(&word, at, sizeof word);
        crc = (uint32_t)_mm_crc32_u64(crc, word);
    }
    for (; size > 0; at++, size--)
        crc = _mm_crc32_u8(crc, *at);
    return crc;
}

/* Four times 128 bits, onto as many. */
FOLDING static inline __m512i fold(__m512i vector, __m512i factor, const uint8_t *onto) {
    __m512i high = _mm512_clmulepi64_epi128(vector, factor, 0x00), low = _mm512_clmulepi64_epi128(vector, factor, 0x11);
    return _mm512_xor_si512(_mm512_xor_si512(high, low), _mm512_loadu_si512(onto));
}

/* Folds each stride onto the next, and gives the CRC of the last. */
FOLDING static uint32_t by_strides(const uint8_t *at, size_t strides, uint32_t crc) {
    __m512i factor = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)factors));
    __m512i first = _mm512_xor_si512(_mm512_loadu_si512(at), _mm512_maskz_set1_epi32(1, (int)crc));
    __m512i second = _mm512_loadu_si512(at + VECTOR_BYTES);
    __m512i third = _mm512_loadu_si512(at + 2 * VECTOR_BYTES);
    __m512i fourth = _mm512_loadu_si512(at + 3 * VECTOR_BYTES);
    while (--strides > 0) {
        at += STRIDE_BYTES;
        first = fold(first, factor, at);
        second = fold(second, factor, at + VECTOR_BYTES);
        third = fold(third, factor, at + 2 * VECTOR_BYTES);
        fourth = fold(fourth, factor, at + 3 * VECTOR_BYTES);
    }
    uint8_t last[STRIDE_BYTES];
    _mm512_storeu_si512(last, first);
    _mm512_storeu_si512(last + VECTOR_BYTES, second);
    _mm512_storeu_si512(last + 2 * VECTOR_BYTES, third);
    _mm512_storeu_si512(last + 3 * VECTOR_BYTES, fourth);
    return by_words(last, sizeof last, 0);
}

INTERLEAVING static uint32_t multiplied(uint32_t crc, uint64_t factor) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)crc), _mm_cvtsi64_si128((long long)factor), 0);
    return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

/* Three blocks at a time. */
INTERLEAVING static uint32_t by_blocks(const uint8_t *at, size_t threes, uint32_t crc) {
    for (; threes > 0; threes--, at += BLOCKS * BLOCK_BYTES) {
        uint64_t first = crc, second = 0, third = 0, words[BLOCKS];
        for (size_t position = 0; position < BLOCK_BYTES; position += sizeof *words) {
            for (size_t block = 0; block < BLOCKS; block++)
                __builtin_memcpy(&words[block], at + block * BLOCK_BYTES + position, sizeof *words);
            first = _mm_crc32_u64(first, words[0]);
            second = _mm_crc32_u64(second, words[1]);
            third = _mm_crc32_u64(third, words[2]);
        }
        crc = multiplied((uint32_t)first, past_two) ^ multiplied((uint32_t)second, past_one) ^ (uint32_t)third;
    }
    return crc;
}

uint32_t crc32c_of(const uint8_t *at, size_t size, uint32_t crc) {
    size_t step = folds ? STRIDE_BYTES : BLOCKS * BLOCK_BYTES, steps = size / step;
    crc = ~crc;
    if (steps > 0)
        crc = folds ? by_strides(at, steps, crc) : by_blocks(at, steps, crc);
    return ~by_words(at + steps * step, size % step, crc);
}

bool crc32c_folds(void) {
    return folds;
}

#else

bool crc32c_prepare(void) {
    return false;
}

bool crc32c_folds(void) {
    return false;
}

uint32_t crc32c_of(const uint8_t *at, size_t size, uint32_t crc) {
    (void)at, (void)size;
    return crc;
}

#endif
