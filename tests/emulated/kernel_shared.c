/*
 * Prints the shared memory that a block of each kernel for GPUs is launched with: lines
 * "KERNEL BYTES", for tools/kernel_table.py. Kernels that have none are not told.
 *
 * The table is called with the smallest shapes that reach every kernel, on the emulated
 * device, and what it launches is written down and not run. gpu_launch() is this file's:
 * the linker wraps it.
 */
#include "device/device.h"
#include "device/gpu/gpu_runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

void __wrap_gpu_launch(enum stream_name s, const struct gpu_launch *l);
void __wrap_gpu_launch(enum stream_name s, const struct gpu_launch *l)
{
    Dl_info where;
    (void)s;
    if (l->shared_bytes > 0 && dladdr((void *)(uintptr_t)l->kernel, &where) &&
        where.dli_sname)
        printf("%s %zu\n", where.dli_sname, l->shared_bytes);
}

/* Nothing reads or writes what these point to. */
static void launch_all(struct device *dev, void *memory)
{
    struct stream *s = device_stream(dev, STREAM_COMPUTE);
    static int32_t targets[1];
    static float mask[1];
    double squares[1];
    for (int64_t D = 32; D <= 256; D += 32) {
        struct attention_bwd bwd = {.fwd = {.B = 1,
                                            .S = 1,
                                            .A = 1,
                                            .A_kv = 1,
                                            .D = D,
                                            .q = memory,
                                            .k = memory,
                                            .v = memory,
                                            .q_row = D,
                                            .kv_row = D,
                                            .out = memory,
                                            .lse = memory,
                                            .drop = dropout_none()},
                                    .dout = memory,
                                    .dq = memory,
                                    .dk = memory,
                                    .dv = memory,
                                    .delta = memory,
                                    .scratch = memory};
        struct attention_decode decode = {.out = memory,
                                          .q = memory,
                                          .keys = memory,
                                          .values = memory,
                                          .kv_row = D,
                                          .scores = memory,
                                          .n_keys = 1,
                                          .A = 1,
                                          .A_kv = 1,
                                          .D = D};
        dev->k->attention_fwd(s, &bwd.fwd);
        dev->k->attention_bwd(s, &bwd);
        dev->k->attention_decode(s, &decode);
    }
    struct xent x = {.logits = memory,
                     .row_max = memory,
                     .row_sum = memory,
                     .target_logit = memory,
                     .targets = targets,
                     .mask = mask,
                     .weight = 1,
                     .column = memory,
                     .R = 1,
                     .V = 1};
    dev->k->xent_max(s, &x);
    dev->k->xent_exp(s, &x);
    dev->k->xent_grad(s, &x);
    dev->k->xent_top(s, &x);
    dev->k->sum_squares(s, &(struct sum_squares){squares, memory, dev->dtype, 1});
    device_synchronize(s);
}

int main(void)
{
    const struct device_request request = {.local_rank = 0, .n_local = 1};
    struct error err;
    for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
        struct device *dev = device_of(DEVICE_EMULATED, (enum dtype)dtype);
        if (device_open(dev, &request, &err)) {
            fprintf(stderr, "kernel_shared: %s\n", err.text);
            return EXIT_FAILURE;
        }
        void *memory = dev->ops->alloc(dev, 4096);
        if (!memory)
            return EXIT_FAILURE;
        launch_all(dev, memory);
        device_free(dev, memory, 4096);
        device_close(dev);
    }
    return EXIT_SUCCESS;
}
