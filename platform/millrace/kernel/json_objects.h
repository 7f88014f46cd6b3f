/* JSON objects in an Arrow array as Python's buffers of Arrow columns. */
#ifndef MILLRACE_JSON_OBJECTS_H
#define MILLRACE_JSON_OBJECTS_H

#include "pymemory.h"

/* (bounds, data, fields) to (rows, places of what is left to others, columns); NULL with a Python error. */
PyObject *json_to_columns(const state_t *state, PyObject *args);

#endif
