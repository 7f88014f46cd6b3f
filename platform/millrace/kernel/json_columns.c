#include "json_columns.h"

#include "json_types.h"

/* Octets of a row; 0 for the types whose rows have bits, or texts. */
static size_t width_of(json_type_t type) {
    switch (type) {
    case JSON_INT32:
    case JSON_FLOAT:
    case JSON_DATE:
        return sizeof(int32_t);
    case JSON_INT64:
    case JSON_DOUBLE:
    case JSON_TIMESTAMP:
        return sizeof(int64_t);
    default:
        return 0;
    }
}

bool json_type_is_known(int type) {
    return type == JSON_BOOLEAN || type == JSON_STRING || width_of((json_type_t)type) > 0;
}

static bool bitmap_open(memory_t *bitmap, size_t rows) {
    bitmap->capacity = rows / 8 + 1;
    bitmap->data = calloc(bitmap->capacity, 1);
    return bitmap->data != NULL;
}

static bool column_open(json_column_t *column, size_t rows) {
    int32_t first = 0;
    if (!bitmap_open(&column->validity, rows))
        return false;
    if (column->type == JSON_BOOLEAN)
        return bitmap_open(&column->data, rows);
    if (column->type != JSON_STRING)
        return memory_reserve(&column->data, rows * width_of(column->type));
    return memory_reserve(&column->offsets, (rows + 1) * sizeof first) &&
           memory_append(&column->offsets, &first, sizeof first);
}

static inline bool is_named(const json_column_t *column, const uint8_t *name, size_t size) {
    return column->name_size == size && memcmp(column->name, name, size) == 0;
}

/* Where a name's column is noted: the number after its index, or 0 where no column has the name. Hashed by FNV-1a. */
static uint32_t *slot_of(const json_table_t *table, const uint8_t *name, size_t size) {
    uint32_t *slots = (uint32_t *)table->slots.data, hash = 2166136261u;
    size_t mask = table->slots.capacity / sizeof *slots - 1;
    for (size_t index = 0; index < size; index++)
        hash = (hash ^ name[index]) * 16777619u;
    size_t slot = hash & mask;
    while (slots[slot] > 0 && !is_named(&table->columns[slots[slot] - 1], name, size))
        slot = (slot + 1) & mask;
    return &slots[slot];
}

/* At least half of the slots stay empty, so that every search ends soon. */
static bool slots_open(json_table_t *table) {
    size_t count = 2;
    while (count < 2 * table->count)
        count *= 2;
    table->slots.data = calloc(count, sizeof(uint32_t));
    table->slots.capacity = count * sizeof(uint32_t);
    return table->slots.data != NULL;
}

bool json_table_open(json_table_t *table, size_t rows) {
    bool is_open = slots_open(table);
    for (size_t index = 0; is_open && index < table->count; index++) {
        json_column_t *column = &table->columns[index];
        is_open = column_open(column, rows);
        *slot_of(table, column->name, column->name_size) = (uint32_t)index + 1;
    }
    return is_open;
}

void json_table_close(json_table_t *table) {
    memory_free(&table->slots);
    for (size_t index = 0; index < table->count; index++) {
        memory_free(&table->columns[index].validity);
        memory_free(&table->columns[index].offsets);
        memory_free(&table->columns[index].data);
    }
}

static inline void put_bit(memory_t *bitmap, int64_t row, bool bit) {
    uint8_t mask = (uint8_t)(1u << (row & 7));
    if (bit)
        bitmap->data[row >> 3] |= mask;
    else
        bitmap->data[row >> 3] &= (uint8_t)~mask;
}

static bool put_null(json_column_t *column, int64_t row) {
    size_t width = width_of(column->type);
    put_bit(&column->validity, row, false);
    if (width > 0)
        memset(column->data.data + (size_t)row * width, 0, width);
    return !column->is_required;
}

static bool put_boolean(json_column_t *column, int64_t row, const json_token_t *token) {
    put_bit(&column->data, row, token->kind == JSON_TRUE);
    return token->kind == JSON_TRUE || token->kind == JSON_FALSE;
}

/* Without room the text is left to others, as all that is not plain. */
static bool put_text(json_column_t *column, const json_token_t *token) {
    if (token->kind != JSON_TEXT || !memory_reserve(&column->data, token->size))
        return false;
    if (token->has_escapes)
        column->data.size += json_unescape(token, column->data.data + column->data.size);
    else
        memory_put(&column->data, token->data, token->size);
    return true;
}

static bool put_value(json_column_t *column, int64_t row, const json_token_t *token) {
    void *data = column->data.data;
    put_bit(&column->validity, row, true);
    switch (column->type) {
    case JSON_INT32:
        return json_to_int32(token, (int32_t *)data + row);
    case JSON_INT64:
        return json_to_int64(token, (int64_t *)data + row);
    case JSON_FLOAT:
        return json_to_float(token, (float *)data + row);
    case JSON_DOUBLE:
        return json_to_double(token, (double *)data + row);
    case JSON_BOOLEAN:
        return put_boolean(column, row, token);
    case JSON_STRING:
        return put_text(column, token);
    case JSON_DATE:
        return json_to_date(token, (int32_t *)data + row);
    case JSON_TIMESTAMP:
        return json_to_timestamp(token, (int64_t *)data + row);
    }
    return false;
}

/* The column of a key; NULL for an undeclared one. */
static json_column_t *column_of(json_table_t *table, const json_token_t *key) {
    size_t index = table->next < table->count ? table->next : 0;
    if (table->count == 0 || !is_named(&table->columns[index], key->data, key->size))
        index = *slot_of(table, key->data, key->size) - (size_t)1;
    if (index >= table->count)
        return NULL;
    table->next = index + 1;
    return &table->columns[index];
}

static bool read_member(json_table_t *table, cursor_t *cursor) {
    json_token_t key, token;
    if (!json_read_key(cursor, &key))
        return false;
    json_column_t *column = column_of(table, &key);
    if (column == NULL)
        return json_skip_value(cursor, 0);
    if (column->seen == table->objects || !json_read_token(cursor, &token))
        return false;
    column->seen = table->objects;
    return token.kind == JSON_NULL ? put_null(column, table->rows) : put_value(column, table->rows, &token);
}

/* One object and nothing else. */
static bool read_object(json_table_t *table, cursor_t *cursor) {
    if (!json_take(cursor, '{'))
        return false;
    if (!json_take(cursor, '}')) {
        do {
            if (!read_member(table, cursor))
                return false;
        } while (json_take(cursor, ','));
        if (!json_take(cursor, '}'))
            return false;
    }
    json_skip_space(cursor);
    return cursor->at == cursor->end;
}

static bool put_absent(json_table_t *table) {
    bool is_whole = true;
    for (size_t index = 0; is_whole && index < table->count; index++) {
        json_column_t *column = &table->columns[index];
        is_whole = column->seen == table->objects || put_null(column, table->rows);
    }
    return is_whole;
}

/* The row's texts end here; those of no row are taken back. */
static void end_texts(json_table_t *table, bool is_row) {
    for (size_t index = 0; index < table->count; index++) {
        json_column_t *column = &table->columns[index];
        if (column->type != JSON_STRING)
            continue;
        int32_t end = (int32_t)column->data.size; /* below 2 GiB: no more than all objects together */
        if (is_row)
            memory_put(&column->offsets, &end, sizeof end);
        else
            column->data.size = (size_t)((int32_t *)column->offsets.data)[table->rows];
    }
}

bool json_append(json_table_t *table, const uint8_t *data, size_t size) {
    cursor_t cursor = {data, data + size};
    table->objects++;
    bool is_row = read_object(table, &cursor) && put_absent(table);
    end_texts(table, is_row);
    table->rows += is_row;
    return is_row;
}

int64_t json_column_end(json_column_t *column, int64_t rows) {
    size_t bitmap_bytes = ((size_t)rows + 7) / 8;
    int64_t nulls = rows;
    column->validity.data[rows >> 3] &= (uint8_t)((1u << (rows & 7)) - 1); /* of what came after the last row */
    for (size_t index = 0; index < bitmap_bytes; index++)
        nulls -= __builtin_popcount(column->validity.data[index]);
    column->validity.size = bitmap_bytes;
    if (column->type == JSON_BOOLEAN)
        column->data.size = bitmap_bytes;
    else if (column->type != JSON_STRING)
        column->data.size = (size_t)rows * width_of(column->type);
    return nulls;
}
