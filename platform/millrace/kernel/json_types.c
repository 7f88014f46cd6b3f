#include "json_types.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { INT64_SURE_DIGITS = 18, DATE_BYTES = 10, TIME_BYTES = 19, MICROSECOND_DIGITS = 6, DAYS_UNTIL_1970 = 719162 };
enum { HOURS = 24, MINUTES = 60, SECONDS = 60, MICROSECONDS = 1000000 };

static inline bool is_number(const json_token_t *token) {
    return token->kind == JSON_INTEGER || token->kind == JSON_FRACTION;
}

bool json_to_int64(const json_token_t *token, int64_t *value) {
    if (token->kind != JSON_INTEGER || token->size > INT64_SURE_DIGITS)
        return false;
    bool is_negative = *token->data == '-';
    int64_t number = 0;
    for (size_t index = is_negative; index < token->size; index++)
        number = 10 * number + (token->data[index] - '0');
    *value = is_negative ? -number : number;
    return true;
}

bool json_to_int32(const json_token_t *token, int32_t *value) {
    int64_t number;
    if (!json_to_int64(token, &number) || number < INT32_MIN || number > INT32_MAX)
        return false;
    *value = (int32_t)number;
    return true;
}

/* A number for C's own reader, which rounds to the nearest; in a locale with another point it ends too early. */
static void terminated(const json_token_t *token, char *text) {
    memcpy(text, token->data, token->size);
    text[token->size] = '\0';
}

/* Whether a number was read whole, and is neither too big nor so small that it lost digits. */
static bool is_whole(const json_token_t *token, const char *text, const char *end, bool is_normal) {
    return *end == '\0' && (is_normal || strspn(text, "-0.") == token->size);
}

bool json_to_float(const json_token_t *token, float *value) {
    char text[JSON_NUMBER_BYTES + 1], *end;
    if (!is_number(token))
        return false;
    terminated(token, text);
    *value = strtof(text, &end);
    return is_whole(token, text, end, isnormal(*value));
}

/* A fraction whose digits and whose power of ten are doubles: their quotient is rounded once, as it must be. */
static bool divided(const json_token_t *token, double *value) {
    static const double powers[INT64_SURE_DIGITS] = {1,   1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,
                                                     1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17};
    bool is_negative = *token->data == '-';
    int64_t digits = 0;
    size_t point = token->size - 1;
    if (FLT_EVAL_METHOD != 0 || token->size > INT64_SURE_DIGITS)
        return false;
    for (size_t index = is_negative; index < token->size; index++)
        if (token->data[index] == '.')
            point = index;
        else if (token->data[index] < '0' || token->data[index] > '9')
            return false; /* an exponent */
        else
            digits = 10 * digits + (token->data[index] - '0');
    if (digits > INT64_C(1) << DBL_MANT_DIG)
        return false;
    *value = (double)digits / powers[token->size - 1 - point];
    if (is_negative)
        *value = -*value;
    return true;
}

bool json_to_double(const json_token_t *token, double *value) {
    char text[JSON_NUMBER_BYTES + 1], *end;
    if (!is_number(token))
        return false;
    if (divided(token, value))
        return true;
    terminated(token, text);
    *value = strtod(text, &end);
    return is_whole(token, text, end, isnormal(*value));
}

/* The number of so many digits. */
static bool read_digits(const uint8_t *at, int count, int *value) {
    *value = 0;
    for (int index = 0; index < count; index++) {
        if (at[index] < '0' || at[index] > '9')
            return false;
        *value = 10 * *value + (at[index] - '0');
    }
    return true;
}

static bool is_leap(int year) {
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* The days of the Gregorian calendar from 1970 to the first of a month. */
static bool read_date(const uint8_t *at, int32_t *days) {
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
    int year, month, day;
    if (!read_digits(at, 4, &year) || at[4] != '-' || !read_digits(at + 5, 2, &month) || at[7] != '-' ||
        !read_digits(at + 8, 2, &day) || year < 1 || month < 1 || month > 12)
        return false;
    int length = before[month] - before[month - 1] + (month == 2 && is_leap(year));
    int years = year - 1;
    *days = 365 * years + years / 4 - years / 100 + years / 400 - DAYS_UNTIL_1970 + before[month - 1] +
            (month > 2 && is_leap(year)) + day - 1;
    return day >= 1 && day <= length;
}

bool json_to_date(const json_token_t *token, int32_t *days) {
    return token->kind == JSON_TEXT && token->size == DATE_BYTES && read_date(token->data, days);
}

/* What follows the seconds: a fraction, a Z, both or nothing. */
static bool read_fraction(const uint8_t *at, const uint8_t *end, int *microseconds) {
    int digits = 0;
    *microseconds = 0;
    if (at < end && *at == '.') {
        for (at++; at < end && *at >= '0' && *at <= '9' && digits < MICROSECOND_DIGITS; at++, digits++)
            *microseconds = 10 * *microseconds + (*at - '0');
        if (digits == 0)
            return false;
        for (; digits < MICROSECOND_DIGITS; digits++)
            *microseconds *= 10;
    }
    at += at < end && *at == 'Z';
    return at == end;
}

bool json_to_timestamp(const json_token_t *token, int64_t *microseconds) {
    const uint8_t *at = token->data;
    int32_t days;
    int hour, minute, second, fraction;
    if (token->kind != JSON_TEXT || token->size < TIME_BYTES || !read_date(at, &days) || (at[10] != 'T' && at[10] != ' ') ||
        !read_digits(at + 11, 2, &hour) || at[13] != ':' || !read_digits(at + 14, 2, &minute) || at[16] != ':' ||
        !read_digits(at + 17, 2, &second) || !read_fraction(at + TIME_BYTES, at + token->size, &fraction))
        return false;
    *microseconds = (((int64_t)days * HOURS + hour) * MINUTES + minute) * SECONDS + second;
    *microseconds = *microseconds * MICROSECONDS + fraction;
    return hour < HOURS && minute < MINUTES && second < SECONDS;
}
