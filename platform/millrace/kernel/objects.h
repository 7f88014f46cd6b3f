/* The records of a batch as Python objects, and Python objects as the records of a batch. */
#ifndef MILLRACE_OBJECTS_H
#define MILLRACE_OBJECTS_H

#include "pymemory.h"

#include "batches.h"

/* A list of `type`, a tuple of (offset, timestamp, key, value, headers); NULL with `fault` set or a Python error. */
PyObject *records_to_python(const batch_t *batch, PyTypeObject *type, fault_t *fault);

/* Appends a record of (offset delta, timestamp delta, key, value, headers), made in `body`; false with a Python error. */
bool record_from_python(memory_t *out, memory_t *body, PyObject *record);

#endif
