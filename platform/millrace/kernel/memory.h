/* Memory that grows, filled without the interpreter's lock and then handed to Python as a read-only buffer. */
#ifndef MILLRACE_MEMORY_H
#define MILLRACE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint8_t *data;
    size_t size, capacity;
} memory_t;

enum { MEMORY_FIRST_BYTES = 256 };

/* Room for so many bytes more; false where there is none. */
static inline bool memory_reserve(memory_t *memory, size_t more) {
    if (memory->capacity - memory->size >= more)
        return true;
    if (more > SIZE_MAX / 2 - memory->size)
        return false;
    size_t capacity = memory->capacity ? 2 * memory->capacity : MEMORY_FIRST_BYTES;
    if (capacity < memory->size + more)
        capacity = memory->size + more;
    uint8_t *data = realloc(memory->data, capacity);
    if (data == NULL)
        return false;
    memory->data = data;
    memory->capacity = capacity;
    return true;
}

/* Appends, where there is room. */
static inline void memory_put(memory_t *memory, const void *bytes, size_t size) {
    if (size > 0)
        memcpy(memory->data + memory->size, bytes, size);
    memory->size += size;
}

static inline bool memory_append(memory_t *memory, const void *bytes, size_t size) {
    if (!memory_reserve(memory, size))
        return false;
    memory_put(memory, bytes, size);
    return true;
}

static inline void memory_free(memory_t *memory) {
    free(memory->data);
    *memory = (memory_t){0};
}

#endif
