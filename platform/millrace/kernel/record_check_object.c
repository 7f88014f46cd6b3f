#include "record_check_object.h"

#include "record_check.h"

/* A chunk below this is gone through sooner than the interpreter's lock would be got back. */
enum { UNLOCKED_BYTES = 64 << 10, CHECK_ARGUMENTS = 5 };

typedef struct {
    PyObject_HEAD
    record_check_t check;
    PyObject *invalid_error;
    bool is_busy; /* without the interpreter's lock */
} record_check_object_t;

static void raise_wrong(PyObject *invalid_error, const record_check_t *check) {
    if (check->what == NULL)
        PyErr_NoMemory();
    else
        PyErr_Format(
            invalid_error, "record %lld, at byte %lld of the batch's records: %s", (long long)check->index,
            (long long)check->position, check->what
        );
}

static PyObject *record_check_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    long long record_count, base_timestamp, earliest, latest;
    int needs_keys;
    if (!PyArg_ParseTuple(args, "LLpLL", &record_count, &base_timestamp, &needs_keys, &earliest, &latest))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    record_check_object_t *self = (record_check_object_t *)allocate(type, 0);
    PyObject *module = self == NULL ? NULL : PyType_GetModule(type);
    if (module == NULL) {
        Py_XDECREF(self);
        return NULL;
    }
    record_rules_t rules = {record_count, base_timestamp, needs_keys, earliest, latest};
    record_check_open(&self->check, &rules);
    self->invalid_error = Py_NewRef(((state_t *)PyModule_GetState(module))->invalid_error);
    return (PyObject *)self;
}

static void record_check_dealloc(PyObject *object) {
    record_check_object_t *self = (record_check_object_t *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    record_check_close(&self->check);
    Py_XDECREF(self->invalid_error);
    release(object);
    Py_DECREF(type);
}

static bool feed_unlocked(record_check_object_t *self, const Py_buffer *view) {
    bool fed;
    self->is_busy = true;
    Py_BEGIN_ALLOW_THREADS
    fed = record_check_feed(&self->check, view->buf, (size_t)view->len);
    Py_END_ALLOW_THREADS
    self->is_busy = false;
    return fed;
}

static PyObject *record_check_feed_python(PyObject *object, PyObject *chunk) {
    record_check_object_t *self = (record_check_object_t *)object;
    Py_buffer view;
    bool fed;
    if (self->is_busy || self->check.what != NULL) {
        PyErr_SetString(PyExc_ValueError, "the check has ended, or another thread is at it");
        return NULL;
    }
    if (PyObject_GetBuffer(chunk, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (view.len < UNLOCKED_BYTES)
        fed = record_check_feed(&self->check, view.buf, (size_t)view.len);
    else
        fed = feed_unlocked(self, &view);
    PyBuffer_Release(&view);
    if (fed)
        return Py_NewRef(Py_None);
    raise_wrong(self->invalid_error, &self->check);
    return NULL;
}

static PyObject *refused_to_python(const record_check_t *check) {
    const refused_t *refused = (const refused_t *)(const void *)check->refused.data;
    Py_ssize_t count = (Py_ssize_t)(check->refused.size / sizeof *refused);
    PyObject *list = PyList_New(count);
    for (Py_ssize_t place = 0; list != NULL && place < count; place++) {
        long long index = refused[place].index, timestamp = refused[place].timestamp;
        PyObject *one = refused[place].has_key ? Py_BuildValue("(LL)", index, timestamp)
                                               : Py_BuildValue("(LO)", index, Py_None);
        if (one == NULL || PyList_SetItem(list, place, one) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *record_check_end_python(PyObject *object, PyObject *Py_UNUSED(nothing)) {
    record_check_object_t *self = (record_check_object_t *)object;
    if (!record_check_end(&self->check)) {
        raise_wrong(self->invalid_error, &self->check);
        return NULL;
    }
    return Py_BuildValue("(LN)", (long long)self->check.max_timestamp, refused_to_python(&self->check));
}

static PyMethodDef record_check_methods[] = {
    {"feed", record_check_feed_python, METH_O, NULL},
    {"end", record_check_end_python, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot record_check_slots[] = {
    {Py_tp_new, record_check_new},
    {Py_tp_dealloc, record_check_dealloc},
    {Py_tp_methods, record_check_methods},
    {0, NULL},
};

PyType_Spec record_check_spec = {
    .name = "millrace.kernel._native.RecordCheck",
    .basicsize = sizeof(record_check_object_t),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = record_check_slots,
};

static PyObject *check_in_place(const state_t *state, const uint8_t *data, size_t size, const record_rules_t *rules) {
    record_check_t check;
    record_check_open(&check, rules);
    if (record_check_feed(&check, data, size) && record_check_end(&check))
        return PyLong_FromLongLong(check.max_timestamp);
    raise_wrong(state->invalid_error, &check);
    return NULL;
}

PyObject *check_records(const state_t *state, PyObject *const *args, Py_ssize_t count) {
    Py_buffer view;
    long long numbers[CHECK_ARGUMENTS] = {0};
    if (count != CHECK_ARGUMENTS) {
        PyErr_SetString(PyExc_TypeError, "check_records takes bytes, their begin and end, a count and a timestamp");
        return NULL;
    }
    for (int place = 1; place < CHECK_ARGUMENTS; place++) {
        numbers[place] = PyLong_AsLongLong(args[place]);
        if (numbers[place] == -1 && PyErr_Occurred())
            return NULL;
    }
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    long long begin = numbers[1], end = numbers[2];
    PyObject *largest = NULL;
    if (begin < 0 || begin > end || end > view.len)
        PyErr_SetString(PyExc_ValueError, "these bytes do not lie in the buffer");
    else {
        record_rules_t rules = {numbers[3], numbers[4], false, INT64_MIN, INT64_MAX};
        largest = check_in_place(state, (const uint8_t *)view.buf + begin, (size_t)(end - begin), &rules);
    }
    PyBuffer_Release(&view);
    return largest;
}
