#include "pymemory.h"

typedef struct {
    PyObject_HEAD
    memory_t memory;
} memory_object_t;

static uint8_t nothing[8];

static int memory_get_buffer(PyObject *self, Py_buffer *view, int flags) {
    memory_t *memory = &((memory_object_t *)self)->memory;
    void *data = memory->size > 0 ? memory->data : nothing;
    return PyBuffer_FillInfo(view, self, data, (Py_ssize_t)memory->size, 1, flags);
}

static void memory_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    memory_free(&((memory_object_t *)self)->memory);
    release(self);
    Py_DECREF(type);
}

static PyType_Slot memory_slots[] = {
    {Py_bf_getbuffer, memory_get_buffer},
    {Py_tp_dealloc, memory_dealloc},
    {0, NULL},
};

PyType_Spec memory_spec = {
    .name = "millrace.kernel._native.Memory",
    .basicsize = sizeof(memory_object_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = memory_slots,
};

PyObject *memory_to_python(const state_t *state, memory_t *memory) {
    PyTypeObject *type = (PyTypeObject *)state->memory_type;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    memory_object_t *object = (memory_object_t *)allocate(type, 0);
    if (object == NULL) {
        memory_free(memory);
        return NULL;
    }
    object->memory = *memory;
    *memory = (memory_t){0};
    if (object->memory.size > 0 && object->memory.size < object->memory.capacity) {
        uint8_t *trimmed = realloc(object->memory.data, object->memory.size);
        if (trimmed != NULL) {
            object->memory.data = trimmed;
            object->memory.capacity = object->memory.size;
        }
    }
    return (PyObject *)object;
}
