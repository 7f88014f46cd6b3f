#include "json_objects.h"

#include "json_columns.h"

/* What one call reads; the bytes stay where they are until the views are released. */
typedef struct {
    Py_buffer bounds, data;
    Py_buffer *names;
    size_t count; /* of objects */
    json_table_t table;
    memory_t left;
} call_t;

static bool field_open(call_t *call, PyObject *item) {
    size_t index = call->table.count;
    json_column_t *column = &call->table.columns[index];
    int type, is_required;
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "a field is a tuple");
        return false;
    }
    if (!PyArg_ParseTuple(item, "y*Cp:field", &call->names[index], &type, &is_required))
        return false;
    call->table.count++;
    *column = (json_column_t){
        .name = call->names[index].buf,
        .name_size = (size_t)call->names[index].len,
        .type = (json_type_t)type,
        .is_required = is_required,
    };
    if (json_type_is_known(type))
        return true;
    PyErr_SetString(PyExc_ValueError, "a field's type is not known");
    return false;
}

static bool fields_open(call_t *call, PyObject *fields) {
    size_t count = (size_t)PyTuple_Size(fields);
    call->names = PyMem_Calloc(count + 1, sizeof *call->names);
    call->table.columns = PyMem_Calloc(count + 1, sizeof *call->table.columns);
    if (call->names == NULL || call->table.columns == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t index = 0; index < count; index++)
        if (!field_open(call, PyTuple_GetItem(fields, (Py_ssize_t)index)))
            return false;
    return true;
}

/* Whether the bounds are those of objects in the data. */
static bool check_bounds(call_t *call) {
    const int32_t *bounds = call->bounds.buf;
    size_t bound_count = (size_t)call->bounds.len / sizeof *bounds;
    bool are_bounds = bound_count > 0 && bounds[0] >= 0 && bounds[bound_count - 1] <= call->data.len;
    for (size_t index = 1; are_bounds && index < bound_count; index++)
        are_bounds = bounds[index - 1] <= bounds[index];
    if (!are_bounds)
        PyErr_SetString(PyExc_ValueError, "the bounds are not those of values in the data");
    call->count = bound_count - 1;
    return are_bounds;
}

static bool read_objects(call_t *call) {
    const int32_t *bounds = call->bounds.buf;
    const uint8_t *data = call->data.buf;
    bool has_room = json_table_open(&call->table, call->count);
    for (size_t index = 0; has_room && index < call->count; index++) {
        int64_t place = (int64_t)index;
        if (!json_append(&call->table, data + bounds[index], (size_t)(bounds[index + 1] - bounds[index])))
            has_room = memory_append(&call->left, &place, sizeof place);
    }
    return has_room;
}

static PyObject *optional_to_python(const state_t *state, memory_t *memory, bool is_there) {
    if (is_there)
        return memory_to_python(state, memory);
    memory_free(memory);
    return Py_NewRef(Py_None);
}

static PyObject *column_to_python(const state_t *state, json_column_t *column, int64_t rows) {
    int64_t nulls = json_column_end(column, rows);
    return Py_BuildValue(
        "(LNNN)", (long long)nulls, optional_to_python(state, &column->validity, nulls > 0),
        optional_to_python(state, &column->offsets, column->type == JSON_STRING), memory_to_python(state, &column->data)
    );
}

static PyObject *table_to_python(const state_t *state, call_t *call) {
    PyObject *columns = PyList_New((Py_ssize_t)call->table.count);
    for (size_t index = 0; columns != NULL && index < call->table.count; index++) {
        PyObject *column = column_to_python(state, &call->table.columns[index], call->table.rows);
        if (column == NULL)
            Py_CLEAR(columns);
        else
            PyList_SetItem(columns, (Py_ssize_t)index, column);
    }
    if (columns == NULL)
        return NULL;
    return Py_BuildValue("(LNN)", (long long)call->table.rows, memory_to_python(state, &call->left), columns);
}

static void call_close(call_t *call) {
    json_table_close(&call->table);
    memory_free(&call->left);
    for (size_t index = 0; index < call->table.count; index++)
        PyBuffer_Release(&call->names[index]);
    PyMem_Free(call->names);
    PyMem_Free(call->table.columns);
    PyBuffer_Release(&call->bounds);
    PyBuffer_Release(&call->data);
}

PyObject *json_to_columns(const state_t *state, PyObject *args) {
    call_t call = {0};
    PyObject *fields, *result = NULL;
    bool has_room;
    if (!PyArg_ParseTuple(args, "y*y*O!", &call.bounds, &call.data, &PyTuple_Type, &fields))
        return NULL;
    if (check_bounds(&call) && fields_open(&call, fields)) {
        Py_BEGIN_ALLOW_THREADS
        has_room = read_objects(&call);
        Py_END_ALLOW_THREADS
        result = has_room ? table_to_python(state, &call) : PyErr_NoMemory();
    }
    call_close(&call);
    return result;
}
