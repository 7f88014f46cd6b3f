/* The check of a produced batch's records, for Python. */
#ifndef MILLRACE_RECORD_CHECK_OBJECT_H
#define MILLRACE_RECORD_CHECK_OBJECT_H

#include "pymemory.h"

/* RecordCheck(record count, base timestamp, whether keys are needed, earliest and latest timestamp): `feed` takes the
   chunks, `end` returns the largest timestamp and what is refused. */
extern PyType_Spec record_check_spec;

/* (buffer, begin, end, record count, base timestamp) to the largest timestamp, of records in one piece of which nothing
   more is asked; NULL with InvalidRecordError. Holds the interpreter's lock: a megabyte takes less than a millisecond. */
PyObject *check_records(const state_t *state, PyObject *const *args, Py_ssize_t count);

#endif
