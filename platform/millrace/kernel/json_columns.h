/* JSON objects as Arrow columns of declared fields, row by row, of those objects that are plain. */
#ifndef MILLRACE_JSON_COLUMNS_H
#define MILLRACE_JSON_COLUMNS_H

#include "memory.h"
#include "json_text.h"

typedef enum {
    JSON_INT32 = 'i',
    JSON_INT64 = 'l',
    JSON_FLOAT = 'f',
    JSON_DOUBLE = 'd',
    JSON_BOOLEAN = 'b',
    JSON_STRING = 's',
    JSON_DATE = 'D',
    JSON_TIMESTAMP = 't',
} json_type_t;

/* A declared field and its column. */
typedef struct {
    const uint8_t *name;
    size_t name_size;
    json_type_t type;
    bool is_required;
    int64_t seen; /* the last object that has it */
    memory_t validity, offsets, data;
} json_column_t;

typedef struct {
    json_column_t *columns;
    size_t count;
    size_t next;    /* the column whose field is expected: objects mostly have theirs in one order */
    memory_t slots; /* of columns by the hash of their names */
    int64_t objects, rows;
} json_table_t;

bool json_type_is_known(int type);
/* Room for so many rows; false where there is none. */
bool json_table_open(json_table_t *table, size_t rows);
void json_table_close(json_table_t *table);
/* A row more, if these bytes are one plain object that fits; false if it must be left to others. */
bool json_append(json_table_t *table, const uint8_t *data, size_t size);
/* To be called once, at the end: how many nulls a column has. */
int64_t json_column_end(json_column_t *column, int64_t rows);

#endif
