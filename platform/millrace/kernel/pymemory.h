/* What the parts of the extension share: its state, and memory as a Python object. */
#ifndef MILLRACE_PYMEMORY_H
#define MILLRACE_PYMEMORY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "memory.h"

typedef struct {
    PyObject *memory_type;
    PyObject *corrupt_error, *invalid_error, *magic_error, *codec_error; /* of millrace.errors */
} state_t;

extern PyType_Spec memory_spec;

/* The memory as a read-only buffer; the memory is empty afterwards, whatever happens. */
PyObject *memory_to_python(const state_t *state, memory_t *memory);

#endif
