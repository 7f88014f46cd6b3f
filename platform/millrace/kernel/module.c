/* The Python side of the record kernel: arguments in, buffers out. No pass of decoding holds the interpreter's lock. */
#include "batches.h"
#include "crc32.h"
#include "crc32c.h"
#include "json_objects.h"
#include "messages.h"
#include "objects.h"
#include "valid_batch.h"
#include "pymemory.h"
#include "record_check_object.h"
#include "request_header.h"

/* Raised with every change that Python sees, here and in __init__.py: an older build is then not taken. */
enum { KERNEL_VERSION = 7 };

/* One item of the list that a call decodes. */
typedef struct {
    Py_buffer view;
    union {
        batch_t batch;
        messages_t messages;
    };
    size_t records; /* the most that there can be, held against the bytes that are there */
    int64_t offset; /* where errors say that it is */
} body_t;

/* What differs between the formats. */
typedef struct {
    bool (*parse)(const state_t *state, PyObject *item, body_t *body);
    bool (*decode)(columns_t *columns, const body_t *body, range_t range, fault_t *fault);
} format_t;

/* The items of one call. Their bytes stay where they are until the views are released. */
typedef struct {
    Py_ssize_t count;
    body_t *bodies;
    size_t records, size_bytes;
} bodies_t;

static void bodies_close(bodies_t *bodies) {
    for (Py_ssize_t index = 0; index < bodies->count; index++)
        PyBuffer_Release(&bodies->bodies[index].view);
    PyMem_Free(bodies->bodies);
}

static void raise_fault(const state_t *state, const body_t *body, const fault_t *fault) {
    PyObject *classes[] = {
        [FAULT_CORRUPT] = state->corrupt_error,
        [FAULT_INVALID] = state->invalid_error,
        [FAULT_MAGIC] = state->magic_error,
        [FAULT_CODEC] = state->codec_error,
    };
    if (fault->what == NULL)
        PyErr_NoMemory();
    else
        PyErr_Format(
            classes[fault->kind], "records at offset %lld: %s (at byte %zd of %zd)", (long long)body->offset,
            fault->what, (Py_ssize_t)fault->position, body->view.len
        );
}

static bool parse_batch(const state_t *state, PyObject *item, body_t *body) {
    long long base_offset, base_timestamp;
    int last_offset_delta, record_count, same_timestamp;
    if (!PyArg_ParseTuple(
            item, "y*LiLip:batch", &body->view, &base_offset, &last_offset_delta, &base_timestamp, &record_count,
            &same_timestamp
        ))
        return false;
    body->batch = (batch_t){
        .data = body->view.buf,
        .size = (size_t)body->view.len,
        .base_offset = base_offset,
        .base_timestamp = base_timestamp,
        .last_offset_delta = last_offset_delta,
        .record_count = record_count,
        .same_timestamp = same_timestamp,
    };
    body->offset = base_offset;
    if (record_count < 0 || (size_t)record_count > body->batch.size / MIN_RECORD_BYTES) {
        raise_fault(state, body, &(fault_t){.what = "more records are counted than there can be"});
        PyBuffer_Release(&body->view);
        return false;
    }
    body->records = (size_t)record_count;
    return true;
}

static bool decode_batch_body(columns_t *columns, const body_t *body, range_t range, fault_t *fault) {
    return decode_batch(columns, &body->batch, range, fault);
}

static bool parse_messages(const state_t *Py_UNUSED(state), PyObject *item, body_t *body) {
    long long offset, timestamp;
    int magic, same_timestamp;
    if (!PyArg_ParseTuple(item, "y*iLLp:messages", &body->view, &magic, &offset, &timestamp, &same_timestamp))
        return false;
    body->messages = (messages_t){
        .data = body->view.buf,
        .size = (size_t)body->view.len,
        .magic = magic,
        .offset = offset,
        .timestamp = timestamp,
        .same_timestamp = same_timestamp,
    };
    body->offset = offset;
    body->records = body->messages.size / MIN_ENTRY_BYTES;
    return true;
}

static bool decode_messages_body(columns_t *columns, const body_t *body, range_t range, fault_t *fault) {
    return decode_messages(columns, &body->messages, range, fault);
}

static bool body_open(const state_t *state, const format_t *format, PyObject *item, body_t *body) {
    if (item == NULL)
        return false;
    if (PyTuple_Check(item))
        return format->parse(state, item, body);
    PyErr_SetString(PyExc_TypeError, "what is decoded is a list of tuples");
    return false;
}

static bool bodies_open(const state_t *state, const format_t *format, bodies_t *bodies, PyObject *list) {
    Py_ssize_t size = PyList_Size(list);
    if (size < 0)
        return false;
    bodies->bodies = PyMem_Calloc((size_t)size + 1, sizeof *bodies->bodies);
    if (bodies->bodies == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t index = 0; index < size; index++) {
        body_t *body = &bodies->bodies[index];
        PyObject *item = Py_XNewRef(PyList_GetItem(list, index));
        bool opened = body_open(state, format, item, body);
        Py_XDECREF(item);
        if (!opened)
            return false;
        bodies->count = index + 1;
        bodies->records += body->records;
        bodies->size_bytes += (size_t)body->view.len;
        if (bodies->size_bytes > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "more than 2 GiB at once do not fit into Arrow's binary columns");
            return false;
        }
    }
    return true;
}

static PyObject *validity_to_python(const state_t *state, memory_t *validity, int64_t nulls, int64_t rows) {
    validity->size = ((size_t)rows + 7) / 8;
    if (nulls > 0)
        return memory_to_python(state, validity);
    memory_free(validity);
    return Py_NewRef(Py_None);
}

static PyObject *binary_to_python(const state_t *state, binary_t *binary) {
    return Py_BuildValue(
        "(LNNN)", (long long)binary->nulls, validity_to_python(state, &binary->validity, binary->nulls, binary->rows),
        memory_to_python(state, &binary->offsets), memory_to_python(state, &binary->data)
    );
}

static PyObject *columns_to_python(const state_t *state, columns_t *columns) {
    return Py_BuildValue(
        "(LN(LNN)NN(LNNN))", (long long)columns->rows, memory_to_python(state, &columns->offsets),
        (long long)columns->timestamp_nulls,
        validity_to_python(state, &columns->timestamp_validity, columns->timestamp_nulls, columns->rows),
        memory_to_python(state, &columns->timestamps), binary_to_python(state, &columns->keys),
        binary_to_python(state, &columns->values), (long long)columns->header_keys.rows,
        memory_to_python(state, &columns->header_offsets), binary_to_python(state, &columns->header_keys),
        binary_to_python(state, &columns->header_values)
    );
}

static PyObject *columns_of(const state_t *state, const format_t *format, const bodies_t *bodies, range_t range) {
    columns_t columns;
    fault_t fault = {0};
    Py_ssize_t index = 0;
    bool decoded;
    Py_BEGIN_ALLOW_THREADS
    decoded = columns_open(&columns, bodies->records, bodies->size_bytes);
    while (decoded && index < bodies->count) {
        decoded = format->decode(&columns, &bodies->bodies[index], range, &fault);
        index += decoded;
    }
    Py_END_ALLOW_THREADS
    PyObject *result = NULL;
    if (decoded)
        result = columns_to_python(state, &columns);
    else
        raise_fault(state, &bodies->bodies[index], &fault);
    columns_close(&columns);
    return result;
}

static PyObject *decode(PyObject *module, PyObject *args, const format_t *format) {
    const state_t *state = PyModule_GetState(module);
    PyObject *list, *result = NULL;
    long long from, until;
    bodies_t bodies = {0};
    if (!PyArg_ParseTuple(args, "OLL", &list, &from, &until))
        return NULL;
    if (bodies_open(state, format, &bodies, list))
        result = columns_of(state, format, &bodies, (range_t){from, until});
    bodies_close(&bodies);
    return result;
}

static PyObject *decode_batches(PyObject *module, PyObject *args) {
    static const format_t format = {parse_batch, decode_batch_body};
    return decode(module, args, &format);
}

static PyObject *decode_message_sets(PyObject *module, PyObject *args) {
    static const format_t format = {parse_messages, decode_messages_body};
    return decode(module, args, &format);
}

static PyObject *read_records(PyObject *module, PyObject *args) {
    const state_t *state = PyModule_GetState(module);
    PyObject *item, *type;
    body_t body;
    fault_t fault = {0};
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &item, &PyType_Type, &type))
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "records are of a tuple's type");
        return NULL;
    }
    if (!parse_batch(state, item, &body))
        return NULL;
    PyObject *list = records_to_python(&body.batch, (PyTypeObject *)type, &fault);
    if (list == NULL && !PyErr_Occurred())
        raise_fault(state, &body, &fault);
    PyBuffer_Release(&body.view);
    return list;
}

static PyObject *write_records(PyObject *Py_UNUSED(module), PyObject *list) {
    memory_t out = {0}, body = {0};
    bool written = PyList_Check(list);
    if (!written)
        PyErr_SetString(PyExc_TypeError, "records are a list");
    for (Py_ssize_t index = 0; written && index < PyList_Size(list); index++) {
        PyObject *record = Py_NewRef(PyList_GetItem(list, index));
        written = record_from_python(&out, &body, record);
        Py_DECREF(record);
    }
    PyObject *result = written ? PyBytes_FromStringAndSize((const char *)out.data, (Py_ssize_t)out.size) : NULL;
    memory_free(&out);
    memory_free(&body);
    return result;
}

/* Holds the interpreter's lock: a megabyte takes 16 us, and who gives the lock away may wait much longer for it. */
static PyObject *crc32c(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    Py_buffer view;
    unsigned long crc = 0;
    if (count < 1 || count > 2) {
        PyErr_SetString(PyExc_TypeError, "crc32c takes bytes, and the CRC of what came before them");
        return NULL;
    }
    if (count > 1 && (crc = PyLong_AsUnsignedLong(args[1])) == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    crc = crc32c_of(view.buf, (size_t)view.len, (uint32_t)crc);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

static PyObject *read_json(PyObject *module, PyObject *args) {
    return json_to_columns(PyModule_GetState(module), args);
}

static PyObject *check_records_python(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    return check_records(PyModule_GetState(module), args, count);
}

static PyObject *request_header_tuple(const request_header_t *header, size_t size) {
    PyObject *client_id = header->client_id_bytes < 0
                              ? Py_NewRef(Py_None)
                              : PyUnicode_DecodeUTF8(header->client_id, header->client_id_bytes, NULL);
    if (client_id == NULL) {
        PyErr_Clear(); /* Python says why it is refused */
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(iiiNnn)", header->api_key, header->api_version, (int)header->correlation_id, client_id,
                         (Py_ssize_t)header->body_position, (Py_ssize_t)size);
}

/* None for a header that is left to Python. */
static PyObject *request_header(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    Py_buffer frame, first_flexible;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "request_header takes a frame, and the first flexible version of each API");
        return NULL;
    }
    if (PyObject_GetBuffer(args[0], &frame, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(args[1], &first_flexible, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&frame);
        return NULL;
    }
    request_header_t header;
    flexible_t apis = {first_flexible.buf, (size_t)first_flexible.len};
    bool is_plain = read_request_header(frame.buf, (size_t)frame.len, apis, &header);
    PyObject *fields = is_plain ? request_header_tuple(&header, (size_t)frame.len) : Py_NewRef(Py_None);
    PyBuffer_Release(&first_flexible);
    PyBuffer_Release(&frame);
    return fields;
}

static PyMethodDef methods[] = {
    {"decode_batches", decode_batches, METH_VARARGS, NULL},
    {"decode_message_sets", decode_message_sets, METH_VARARGS, NULL},
    {"read_records", read_records, METH_VARARGS, NULL},
    {"write_records", write_records, METH_O, NULL},
    {"read_json", read_json, METH_VARARGS, NULL},
    {"request_header", (PyCFunction)(void (*)(void))request_header, METH_FASTCALL, NULL},
    {"check_records", (PyCFunction)(void (*)(void))check_records_python, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyObject *is_valid_batch_python(PyObject *Py_UNUSED(module), PyObject *batch) {
    Py_buffer view;
    if (PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    bool is_valid = is_valid_batch(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyBool_FromLong(is_valid);
}

/* Where the processor does it faster than the package crc32c, which has the instruction for it too. */
static PyMethodDef crc32c_methods[] = {
    {"crc32c", (PyCFunction)(void (*)(void))crc32c, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

/* Where the processor can tell a batch's CRC. */
static PyMethodDef valid_batch_methods[] = {
    {"is_valid_batch", is_valid_batch_python, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module) {
    state_t *state = PyModule_GetState(module);
    PyObject *errors = PyImport_ImportModule("millrace.errors");
    if (errors == NULL)
        return -1;
    state->corrupt_error = PyObject_GetAttrString(errors, "CorruptRecordError");
    state->invalid_error = PyObject_GetAttrString(errors, "InvalidRecordError");
    state->magic_error = PyObject_GetAttrString(errors, "UnsupportedMagicError");
    state->codec_error = PyObject_GetAttrString(errors, "UnsupportedCodecError");
    Py_DECREF(errors);
    state->memory_type = PyType_FromSpec(&memory_spec);
    PyObject *record_check_type = PyType_FromModuleAndSpec(module, &record_check_spec, NULL);
    if (record_check_type != NULL)
        PyModule_AddType(module, (PyTypeObject *)record_check_type);
    Py_XDECREF(record_check_type);
    if (PyErr_Occurred())
        return -1;
    crc32_prepare();
    if (crc32c_prepare() && PyModule_AddFunctions(module, valid_batch_methods) < 0)
        return -1;
    if (crc32c_folds() && PyModule_AddFunctions(module, crc32c_methods) < 0)
        return -1;
    return PyModule_AddIntConstant(module, "VERSION", KERNEL_VERSION);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    state_t *state = PyModule_GetState(module);
    Py_VISIT(state->memory_type);
    Py_VISIT(state->corrupt_error);
    Py_VISIT(state->invalid_error);
    Py_VISIT(state->magic_error);
    Py_VISIT(state->codec_error);
    return 0;
}

static int module_clear(PyObject *module) {
    state_t *state = PyModule_GetState(module);
    Py_CLEAR(state->memory_type);
    Py_CLEAR(state->corrupt_error);
    Py_CLEAR(state->invalid_error);
    Py_CLEAR(state->magic_error);
    Py_CLEAR(state->codec_error);
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "millrace.kernel._native",
    .m_size = sizeof(state_t),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__native(void) {
    return PyModuleDef_Init(&definition);
}
