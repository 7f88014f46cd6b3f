/* The header of a Kafka request, as nearly all are (`millrace.wire.header`). */
#ifndef MILLRACE_REQUEST_HEADER_H
#define MILLRACE_REQUEST_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int api_key, api_version;
    int32_t correlation_id;
    const char *client_id;
    int client_id_bytes; /* -1 for null */
    size_t body_position;
} request_header_t;

/* The versions from which APIs are flexible, one byte for each key; 255 for an API that never is. */
typedef struct {
    const uint8_t *first_flexible;
    size_t keys;
} flexible_t;

/* Reads the header of a frame; false for one that is cut short, of another form, or with tagged fields. */
bool read_request_header(const uint8_t *frame, size_t size, flexible_t apis, request_header_t *header);

#endif
