/* UTF-8 as Python reads it: Unicode's table 3-7, so no surrogates, nothing overlong, nothing above U+10FFFF. */
#ifndef MILLRACE_UTF8_H
#define MILLRACE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool is_utf8(const uint8_t *at, size_t size) {
    const uint8_t *end = at + size;
    while (at < end) {
        uint8_t first = *at++;
        if (first < 0x80)
            continue;
        if (first < 0xC2 || first > 0xF4)
            return false;
        int following = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
        if (end - at < following)
            return false;
        uint8_t lowest = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
        uint8_t highest = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        if (*at < lowest || *at > highest)
            return false;
        for (at++; --following > 0; at++)
            if ((*at & 0xC0) != 0x80)
                return false;
    }
    return true;
}

#endif
