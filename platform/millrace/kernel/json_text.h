/* The grammar of JSON (RFC 8259), of what is plain: numbers of a few digits, keys without escapes, nothing nested deep.
   False says that there is something else, which may be JSON all the same. */
#ifndef MILLRACE_JSON_TEXT_H
#define MILLRACE_JSON_TEXT_H

#include <string.h>

#include "utf8.h"
#include "varint.h"

enum { JSON_NUMBER_BYTES = 40, JSON_EXPONENT_DIGITS = 2, JSON_DEPTH = 32 };

typedef enum { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_INTEGER, JSON_FRACTION, JSON_TEXT } json_kind_t;

/* A value that holds no others; a text without its quotes. */
typedef struct {
    json_kind_t kind;
    const uint8_t *data;
    size_t size;
    bool has_escapes;
} json_token_t;

/* The character of the escape that the cursor stands before, which moves behind it. */
bool json_read_escape(cursor_t *cursor, uint32_t *character);
/* The characters of a text in UTF-8, for which there is room in as many octets as the text has; how many there are. */
size_t json_unescape(const json_token_t *text, uint8_t *out);
/* Past a value, whatever it holds. */
bool json_skip_value(cursor_t *cursor, int depth);

static inline bool json_is_at(const cursor_t *cursor, uint8_t octet) {
    return cursor->at < cursor->end && *cursor->at == octet;
}

static inline void json_skip_space(cursor_t *cursor) {
    while (json_is_at(cursor, ' ') || json_is_at(cursor, '\n') || json_is_at(cursor, '\r') || json_is_at(cursor, '\t'))
        cursor->at++;
}

/* Whether this octet comes next, behind space; moves behind it. */
static inline bool json_take(cursor_t *cursor, uint8_t octet) {
    json_skip_space(cursor);
    bool is_there = json_is_at(cursor, octet);
    cursor->at += is_there;
    return is_there;
}

/* The text that begins behind the cursor's quote. */
static inline bool json_read_text(cursor_t *cursor, json_token_t *token) {
    uint8_t octets = 0;
    uint32_t character;
    *token = (json_token_t){.kind = JSON_TEXT, .data = ++cursor->at};
    while (cursor->at < cursor->end && *cursor->at != '"') {
        if (*cursor->at < ' ')
            return false;
        octets |= *cursor->at;
        if (*cursor->at != '\\')
            cursor->at++;
        else if (json_read_escape(cursor, &character))
            token->has_escapes = true;
        else
            return false;
    }
    token->size = (size_t)(cursor->at - token->data);
    if (cursor->at == cursor->end)
        return false;
    cursor->at++;
    return octets < 0x80 || is_utf8(token->data, token->size);
}

/* How many digits there are; moves behind them. */
static inline size_t json_skip_digits(cursor_t *cursor) {
    const uint8_t *begin = cursor->at;
    while (cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9')
        cursor->at++;
    return (size_t)(cursor->at - begin);
}

static inline bool json_skip_exponent(cursor_t *cursor) {
    cursor->at++;
    cursor->at += json_is_at(cursor, '+') || json_is_at(cursor, '-');
    size_t digits = json_skip_digits(cursor);
    return digits > 0 && digits <= JSON_EXPONENT_DIGITS;
}

static inline bool json_read_number(cursor_t *cursor, json_token_t *token) {
    *token = (json_token_t){.kind = JSON_INTEGER, .data = cursor->at};
    cursor->at += *cursor->at == '-';
    if (json_is_at(cursor, '0'))
        cursor->at++;
    else if (json_skip_digits(cursor) == 0)
        return false;
    if (json_is_at(cursor, '.')) {
        token->kind = JSON_FRACTION;
        cursor->at++;
        if (json_skip_digits(cursor) == 0)
            return false;
    }
    if (json_is_at(cursor, 'e') || json_is_at(cursor, 'E')) {
        token->kind = JSON_FRACTION;
        if (!json_skip_exponent(cursor))
            return false;
    }
    token->size = (size_t)(cursor->at - token->data);
    return token->size <= JSON_NUMBER_BYTES;
}

static inline bool json_read_word(cursor_t *cursor, const char *word, json_kind_t kind, json_token_t *token) {
    *token = (json_token_t){.kind = kind, .data = cursor->at, .size = strlen(word)};
    if (cursor_left(cursor) < token->size || memcmp(cursor->at, word, token->size) != 0)
        return false;
    cursor->at += token->size;
    return true;
}

/* The value that comes next, behind space; false for one that holds others. */
static inline bool json_read_token(cursor_t *cursor, json_token_t *token) {
    json_skip_space(cursor);
    if (cursor->at == cursor->end)
        return false;
    switch (*cursor->at) {
    case '"':
        return json_read_text(cursor, token);
    case 'n':
        return json_read_word(cursor, "null", JSON_NULL, token);
    case 't':
        return json_read_word(cursor, "true", JSON_TRUE, token);
    case 'f':
        return json_read_word(cursor, "false", JSON_FALSE, token);
    default:
        return json_read_number(cursor, token);
    }
}

/* A key and its colon. */
static inline bool json_read_key(cursor_t *cursor, json_token_t *key) {
    json_skip_space(cursor);
    return json_is_at(cursor, '"') && json_read_text(cursor, key) && !key->has_escapes && json_take(cursor, ':');
}

#endif
