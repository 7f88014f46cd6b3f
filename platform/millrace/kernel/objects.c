#include "objects.h"

enum { RECORD_FIELDS = 5, HEADER_FIELDS = 2, ANY = -1, MAX_VARINT_BYTES = 10 };

/* The numbers of a batch may lie at the ends of 64 bits: Python has room for their sum. */
static PyObject *sum_to_python(int64_t left, int64_t right) {
    int64_t sum;
    if (!__builtin_add_overflow(left, right, &sum))
        return PyLong_FromLongLong(sum);
    PyObject *first = PyLong_FromLongLong(left), *second = PyLong_FromLongLong(right), *total = NULL;
    if (first != NULL && second != NULL)
        total = PyNumber_Add(first, second);
    Py_XDECREF(first);
    Py_XDECREF(second);
    return total;
}

static PyObject *field_to_python(field_t field) {
    if (field.data == NULL)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)field.data, (Py_ssize_t)field.size);
}

/* What is no UTF-8 is replaced, as by Kafka's Java client; a null key is shown as the empty one. */
static PyObject *header_key_to_python(field_t key) {
    return PyUnicode_DecodeUTF8(key.data == NULL ? "" : (const char *)key.data, (Py_ssize_t)key.size, "replace");
}

static PyObject *headers_to_python(batch_record_t *found, fault_t *fault) {
    PyObject *headers = PyTuple_New((Py_ssize_t)found->header_count);
    for (Py_ssize_t index = 0; headers != NULL && index < found->header_count; index++) {
        field_t key, value;
        PyObject *header = NULL;
        if (read_header(&found->headers, &key, &value, &fault->what))
            header = Py_BuildValue("(NN)", header_key_to_python(key), field_to_python(value));
        if (header == NULL)
            Py_CLEAR(headers);
        else
            PyTuple_SetItem(headers, index, header);
    }
    return headers;
}

/* What the type's own constructor would make, without its cost. Takes the references, of which some may be NULL. */
static PyObject *tuple_of(PyTypeObject *type, PyObject **fields) {
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    bool whole = true;
    for (int index = 0; index < RECORD_FIELDS; index++)
        whole = whole && fields[index] != NULL;
    PyObject *tuple = whole ? allocate(type, RECORD_FIELDS) : NULL;
    for (int index = 0; index < RECORD_FIELDS; index++)
        if (tuple != NULL)
            PyTuple_SetItem(tuple, index, fields[index]);
        else
            Py_XDECREF(fields[index]);
    return tuple;
}

PyObject *records_to_python(const batch_t *batch, PyTypeObject *type, fault_t *fault) {
    cursor_t cursor = {batch->data, batch->data + batch->size};
    PyObject *list = PyList_New(batch->record_count);
    batch_record_t found = BEFORE_FIRST;
    for (int32_t index = 0; list != NULL && index < batch->record_count; index++) {
        PyObject *record = NULL;
        if (read_record(batch, &cursor, &found, fault)) {
            PyObject *fields[RECORD_FIELDS] = {
                sum_to_python(batch->base_offset, found.offset_delta),
                sum_to_python(batch->base_timestamp, batch->same_timestamp ? 0 : found.timestamp_delta),
                field_to_python(found.record.key),
                field_to_python(found.record.value),
                headers_to_python(&found, fault),
            };
            record = tuple_of(type, fields);
        }
        if (record == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, index, record);
    }
    if (list != NULL && !check_end(batch, &cursor, fault))
        Py_CLEAR(list);
    return list;
}

static bool reserve(memory_t *memory, size_t size) {
    if (memory_reserve(memory, size))
        return true;
    PyErr_NoMemory();
    return false;
}

static bool put_varint(memory_t *memory, int64_t value) {
    if (!reserve(memory, MAX_VARINT_BYTES))
        return false;
    uint64_t zigzag = (uint64_t)value << 1 ^ (value < 0 ? UINT64_MAX : 0);
    for (; zigzag > 0x7F; zigzag >>= 7)
        memory->data[memory->size++] = (uint8_t)(zigzag | 0x80);
    memory->data[memory->size++] = (uint8_t)zigzag;
    return true;
}

static bool put_bytes(memory_t *memory, const void *bytes, Py_ssize_t size) {
    if (!put_varint(memory, size) || !reserve(memory, (size_t)size))
        return false;
    memory_put(memory, bytes, (size_t)size);
    return true;
}

static bool put_field(memory_t *memory, PyObject *field) {
    if (field == Py_None)
        return put_varint(memory, -1);
    Py_buffer view;
    if (PyObject_GetBuffer(field, &view, PyBUF_SIMPLE) < 0)
        return false;
    bool put = put_bytes(memory, view.buf, view.len);
    PyBuffer_Release(&view);
    return put;
}

static bool put_integer(memory_t *memory, PyObject *number) {
    long long value = PyLong_AsLongLong(number);
    return !(value == -1 && PyErr_Occurred()) && put_varint(memory, value);
}

/* A new reference to the items of a sequence, of which there must be so many unless that is ANY; or a Python error. */
static PyObject *items_of(PyObject *sequence, Py_ssize_t count) {
    PyObject *items = PySequence_Tuple(sequence);
    if (items != NULL && count != ANY && PyTuple_Size(items) != count) {
        PyErr_Format(PyExc_ValueError, "%zd items, not %zd", PyTuple_Size(items), count);
        Py_CLEAR(items);
    }
    return items;
}

static bool put_header(memory_t *memory, PyObject *header) {
    PyObject *items = items_of(header, HEADER_FIELDS);
    if (items == NULL)
        return false;
    Py_ssize_t size;
    const char *key = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(items, 0), &size);
    bool put = key != NULL && put_bytes(memory, key, size) && put_field(memory, PyTuple_GetItem(items, 1));
    Py_DECREF(items);
    return put;
}

static bool put_headers(memory_t *memory, PyObject *headers) {
    PyObject *items = items_of(headers, ANY);
    if (items == NULL)
        return false;
    Py_ssize_t count = PyTuple_Size(items);
    bool put = put_varint(memory, count);
    for (Py_ssize_t index = 0; put && index < count; index++)
        put = put_header(memory, PyTuple_GetItem(items, index));
    Py_DECREF(items);
    return put;
}

bool record_from_python(memory_t *out, memory_t *body, PyObject *record) {
    PyObject *items = items_of(record, RECORD_FIELDS);
    if (items == NULL)
        return false;
    bool put = reserve(body, 1);
    if (put) {
        body->size = 0;
        body->data[body->size++] = 0; /* attributes, of which none is defined */
        put = put_integer(body, PyTuple_GetItem(items, 1)) && put_integer(body, PyTuple_GetItem(items, 0)) &&
              put_field(body, PyTuple_GetItem(items, 2)) && put_field(body, PyTuple_GetItem(items, 3)) &&
              put_headers(body, PyTuple_GetItem(items, 4)) && put_bytes(out, body->data, (Py_ssize_t)body->size);
    }
    Py_DECREF(items);
    return put;
}
