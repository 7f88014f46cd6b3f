/* Values of JSON as values of Arrow's types; false where one is of another type, or may not fit. */
#ifndef MILLRACE_JSON_TYPES_H
#define MILLRACE_JSON_TYPES_H

#include "json_text.h"

bool json_to_int32(const json_token_t *token, int32_t *value);
bool json_to_int64(const json_token_t *token, int64_t *value);
/* Rounded to the nearest. */
bool json_to_float(const json_token_t *token, float *value);
bool json_to_double(const json_token_t *token, double *value);
/* Days since 1970 of `YYYY-MM-DD`. */
bool json_to_date(const json_token_t *token, int32_t *days);
/* Microseconds since 1970 of `YYYY-MM-DD hh:mm:ss[.f][Z]` or with a T, of one to six digits of a second, in UTC. */
bool json_to_timestamp(const json_token_t *token, int64_t *microseconds);

#endif
