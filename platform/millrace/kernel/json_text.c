#include "json_text.h"

enum { HIGH_SURROGATES = 0xD800, LOW_SURROGATES = 0xDC00, SURROGATES_END = 0xE000, HEX_DIGITS = 4 };

/* The four hexadecimal digits that the cursor stands before. */
static bool read_hex(cursor_t *cursor, uint32_t *number) {
    *number = 0;
    if (cursor_left(cursor) < HEX_DIGITS)
        return false;
    for (int index = 0; index < HEX_DIGITS; index++) {
        uint8_t octet = *cursor->at++, letter = octet | 0x20;
        if (octet >= '0' && octet <= '9')
            *number = *number << 4 | (uint32_t)(octet - '0');
        else if (letter >= 'a' && letter <= 'f')
            *number = *number << 4 | (uint32_t)(letter - 'a' + 10);
        else
            return false;
    }
    return true;
}

/* What follows \u: a character, or the two halves of one. */
static bool read_unicode(cursor_t *cursor, uint32_t *character) {
    uint32_t low;
    if (!read_hex(cursor, character))
        return false;
    if (*character < HIGH_SURROGATES || *character >= SURROGATES_END)
        return true;
    if (*character >= LOW_SURROGATES || cursor_left(cursor) < 2 || memcmp(cursor->at, "\\u", 2) != 0)
        return false;
    cursor->at += 2;
    if (!read_hex(cursor, &low) || low < LOW_SURROGATES || low >= SURROGATES_END)
        return false;
    *character = 0x10000 + ((*character - HIGH_SURROGATES) << 10) + (low - LOW_SURROGATES);
    return true;
}

bool json_read_escape(cursor_t *cursor, uint32_t *character) {
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (cursor_left(cursor) < 2)
        return false;
    uint8_t letter = cursor->at[1];
    cursor->at += 2;
    if (letter == 'u')
        return read_unicode(cursor, character);
    const char *found = memchr(letters, letter, sizeof letters - 1);
    if (found != NULL)
        *character = (uint32_t)meant[found - letters];
    return found != NULL;
}

static uint8_t *put_utf8(uint8_t *out, uint32_t character) {
    static const uint8_t first[] = {0, 0xC0, 0xE0, 0xF0};
    int following = (character >= 0x80) + (character >= 0x800) + (character >= 0x10000);
    *out++ = (uint8_t)(first[following] | character >> (6 * following));
    while (following-- > 0)
        *out++ = (uint8_t)(0x80 | (character >> (6 * following) & 0x3F));
    return out;
}

size_t json_unescape(const json_token_t *text, uint8_t *out) {
    cursor_t cursor = {text->data, text->data + text->size};
    uint8_t *begin = out;
    uint32_t character;
    while (cursor.at < cursor.end)
        if (*cursor.at != '\\')
            *out++ = *cursor.at++;
        else if (json_read_escape(&cursor, &character))
            out = put_utf8(out, character);
    return (size_t)(out - begin);
}

/* Past the values of an array, or the keys and values of an object. */
static bool skip_items(cursor_t *cursor, int depth) {
    bool is_object = *cursor->at++ == '{';
    uint8_t last = is_object ? '}' : ']';
    json_token_t key;
    if (json_take(cursor, last))
        return true;
    do {
        if ((is_object && !json_read_key(cursor, &key)) || !json_skip_value(cursor, depth))
            return false;
    } while (json_take(cursor, ','));
    return json_take(cursor, last);
}

bool json_skip_value(cursor_t *cursor, int depth) {
    json_token_t token;
    json_skip_space(cursor);
    if (json_is_at(cursor, '{') || json_is_at(cursor, '['))
        return depth < JSON_DEPTH && skip_items(cursor, depth + 1);
    return json_read_token(cursor, &token);
}
