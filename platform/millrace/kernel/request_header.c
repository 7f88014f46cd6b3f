#include "request_header.h"

enum { API_VERSION_POSITION = 2, CORRELATION_ID_POSITION = 4, CLIENT_ID_POSITION = 8, FIXED_BYTES = 10 };
enum { NEVER_FLEXIBLE = 255 };
enum { CONTROLLED_SHUTDOWN = 7 }; /* its version 0 has no client id */

static int read_int16(const uint8_t *at) {
    return (int16_t)(uint16_t)(at[0] << 8 | at[1]);
}

static int32_t read_int32(const uint8_t *at) {
    return (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
}

bool read_request_header(const uint8_t *frame, size_t size, flexible_t apis, request_header_t *header) {
    if (size < FIXED_BYTES)
        return false;
    int api_key = read_int16(frame), api_version = read_int16(frame + API_VERSION_POSITION);
    int client_id_bytes = read_int16(frame + CLIENT_ID_POSITION);
    if (api_key < 0 || (size_t)api_key >= apis.keys || client_id_bytes < -1)
        return false;
    if (api_key == CONTROLLED_SHUTDOWN && api_version == 0)
        return false;
    size_t position = FIXED_BYTES + (client_id_bytes > 0 ? (size_t)client_id_bytes : 0);
    if (position > size)
        return false;
    int first_flexible = apis.first_flexible[api_key];
    bool is_flexible = first_flexible != NEVER_FLEXIBLE && api_version >= first_flexible;
    if (is_flexible && (position == size || frame[position++] != 0))
        return false;
    *header = (request_header_t){
        .api_key = api_key,
        .api_version = api_version,
        .correlation_id = read_int32(frame + CORRELATION_ID_POSITION),
        .client_id = (const char *)frame + FIXED_BYTES,
        .client_id_bytes = client_id_bytes,
        .body_position = position,
    };
    return true;
}
