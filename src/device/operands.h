/*
 * operands - what a kernel touches, from its arguments: the pointers among them, what
 * each points to, whether that is read or written, and the arithmetic done with it.
 *
 * One description per struct of kernels.h serves everything that wraps kernels or counts
 * their work: the emulated GPU, the benchmark, the guarded and hosted tables of tests.
 */
#ifndef DEVICE_OPERANDS_H
#define DEVICE_OPERANDS_H

#include "device/device.h"

enum operand_access {
    OPERAND_READ,
    OPERAND_WRITTEN, // overwritten
    OPERAND_UPDATED, // read and written
    OPERAND_SCRATCH, // written, and of no use afterwards
    OPERAND_HOST,    // an array of the host, read before the kernel returns
    OPERAND_RESULT,  // an array of the host, written once the stream is synchronised
};

/* Element (r, c) lies r * row + c * col elements from the first. */
struct operand {
    void *pointer; // where the pointer to the first element is; that is not NULL
    enum operand_access access;
    size_t element; // bytes
    int64_t rows, row, cols, col;
    int64_t n_used; // elements read or written, if not all are
};

static inline void *operand_address(const struct operand *o)
{
    return *(void **)o->pointer;
}

struct operands {
    /* Called for every pointer that is not NULL. It may replace the pointer: operands
     * behind it are named after it. */
    void (*visit)(void *context, const struct operand *o);
    void *context;
    const struct device *dev;

    double flops; // set by operands_of()
};

/* Visit the operands of one call. `args` is the struct of the operation. */
void operands_of(enum operation op, void *args, struct operands *o);

/* Bytes read and written, scratch and arrays of the host apart, and operations. */
struct operation_work {
    double bytes, flops;
};
struct operation_work operation_work(enum operation op, const void *args,
                                     const struct device *dev);

/* -- operations by number ------------------------------------------------------------ */

union operation_args { // those of any operation
#define OPERATION_ARGS(name, args) struct args name;
    OPERATIONS(OPERATION_ARGS)
#undef OPERATION_ARGS
};

const char *operation_name(enum operation op);
void operation_run(const struct kernels *k, enum operation op, struct stream *s,
                   const void *args);

#endif
