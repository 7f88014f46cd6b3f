#include "messages.h"

#include "crc32.h"

enum { ENTRY_BYTES = 12, START_BYTES = 6, CRC_BYTES = 4, TIMESTAMP_BYTES = 8, LENGTH_BYTES = 4, MIN_MESSAGE_BYTES = 14 };
enum { MAGIC_V0 = 0, MAGIC_V1 = 1, CODEC_MASK = 0x07, LARGEST_CODEC = 4, NULL_LENGTH = -1, NO_TIMESTAMP = -1 };

typedef struct {
    record_t record;
    int magic, codec;
} message_t;

static inline uint32_t read_u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline int64_t read_i64(const uint8_t *at) {
    return (int64_t)((uint64_t)read_u32(at) << 32 | read_u32(at + 4));
}

static inline bool fail(fault_t *fault, fault_kind_t kind, const char *what) {
    fault->kind = kind;
    fault->what = what;
    return false;
}

static inline bool read_field(const uint8_t **at, const uint8_t *end, field_t *field, fault_t *fault) {
    if (end - *at < LENGTH_BYTES)
        return fail(fault, FAULT_CORRUPT, "a message ends inside a field");
    int32_t length = (int32_t)read_u32(*at);
    *at += LENGTH_BYTES;
    if (length == NULL_LENGTH) {
        *field = (field_t){NULL, 0};
        return true;
    }
    if (length < 0 || length > end - *at)
        return fail(fault, FAULT_CORRUPT, "a field runs over its message");
    *field = (field_t){*at, (size_t)length};
    *at += length;
    return true;
}

/* The bytes of a message between `at` and `end`, of which there are MIN_MESSAGE_BYTES at least. */
static inline bool read_message(const uint8_t *at, const uint8_t *end, bool checked, message_t *message, fault_t *fault) {
    message->magic = (int8_t)at[CRC_BYTES];
    message->codec = at[CRC_BYTES + 1] & CODEC_MASK;
    if (message->magic != MAGIC_V0 && message->magic != MAGIC_V1)
        return fail(fault, FAULT_MAGIC, "the magic is not that of a message set");
    if (!checked && crc32_of(at + CRC_BYTES, (size_t)(end - at) - CRC_BYTES) != read_u32(at))
        return fail(fault, FAULT_CORRUPT, "the CRC-32 does not match");
    at += START_BYTES;
    message->record.timestamp_ms = NO_TIMESTAMP;
    message->record.has_timestamp = true;
    if (message->magic == MAGIC_V1) {
        if (end - at < TIMESTAMP_BYTES)
            return fail(fault, FAULT_CORRUPT, "a message ends inside a field");
        message->record.timestamp_ms = read_i64(at);
        at += TIMESTAMP_BYTES;
    }
    if (!read_field(&at, end, &message->record.key, fault) || !read_field(&at, end, &message->record.value, fault))
        return false;
    return at == end || fail(fault, FAULT_CORRUPT, "bytes follow the value of a message");
}

/* The entry at the position, which moves behind it. `checked` leaves out the CRC. */
static inline bool
read_entry(const messages_t *messages, size_t *position, bool checked, message_t *message, fault_t *fault) {
    const uint8_t *entry = messages->data + *position;
    size_t left = messages->size - *position;
    fault->position = *position;
    if (left < ENTRY_BYTES)
        return fail(fault, FAULT_CORRUPT, "a message is cut short");
    int32_t size = (int32_t)read_u32(entry + sizeof(int64_t));
    if (size < MIN_MESSAGE_BYTES)
        return fail(fault, FAULT_CORRUPT, "a message's size is below a header's");
    if ((size_t)size > left - ENTRY_BYTES)
        return fail(fault, FAULT_CORRUPT, "a message is cut short");
    message->record.offset = read_i64(entry);
    *position += ENTRY_BYTES + (size_t)size;
    return read_message(entry + ENTRY_BYTES, entry + ENTRY_BYTES + size, checked, message, fault);
}

/* First pass over what was in a wrapper: whether it can be read, and the offset of its last message. */
static bool check_entries(const messages_t *messages, int64_t *last_offset, fault_t *fault) {
    size_t position = 0;
    message_t message;
    do {
        if (!read_entry(messages, &position, false, &message, fault))
            return false;
    } while (position < messages->size);
    *last_offset = message.record.offset;
    return true;
}

static bool check_inner(const messages_t *wrapper, const message_t *message, int64_t last_offset, fault_t *fault) {
    if (message->codec > LARGEST_CODEC)
        return fail(fault, FAULT_CODEC, "the compression codec is not defined");
    if (message->codec != 0)
        return fail(fault, FAULT_INVALID, "a wrapper holds another wrapper");
    if (message->magic != wrapper->magic)
        return fail(fault, FAULT_INVALID, "a wrapper holds a message of another magic");
    if (message->record.offset < 0 || message->record.offset > last_offset)
        return fail(fault, FAULT_INVALID, "a wrapper holds an offset beyond its last one");
    return true;
}

static bool decode_wrapped(columns_t *columns, const messages_t *wrapper, range_t range, fault_t *fault) {
    int64_t last_offset, base_offset = 0;
    message_t message;
    if (!check_entries(wrapper, &last_offset, fault))
        return false;
    if (wrapper->magic == MAGIC_V1 && last_offset >= 0 && wrapper->offset > last_offset)
        base_offset = wrapper->offset - last_offset;
    for (size_t position = 0; position < wrapper->size;) {
        if (!read_entry(wrapper, &position, true, &message, fault) ||
            !check_inner(wrapper, &message, last_offset, fault))
            return false;
        message.record.offset += base_offset;
        if (wrapper->same_timestamp)
            message.record.timestamp_ms = wrapper->timestamp;
        if (in_range(range, message.record.offset) && !append_record(columns, &message.record))
            return false;
    }
    return true;
}

bool decode_messages(columns_t *columns, const messages_t *messages, range_t range, fault_t *fault) {
    message_t message;
    if (messages->magic != NO_WRAPPER)
        return decode_wrapped(columns, messages, range, fault);
    for (size_t position = 0; position < messages->size;) {
        if (!read_entry(messages, &position, false, &message, fault))
            return false;
        if (in_range(range, message.record.offset) && !append_record(columns, &message.record))
            return false;
    }
    return true;
}
