/*
 * gpu_table_attention - the table's kernels of attention and of decoding, see kernels.h.
 * Backward needs no scratch memory.
 */
#ifndef DEVICE_GPU_GPU_TABLE_ATTENTION_H
#define DEVICE_GPU_GPU_TABLE_ATTENTION_H

#include "device/kernels.h"

void gpu_table_attention_fwd(struct stream *s, const struct attention *at);
void gpu_table_attention_bwd(struct stream *s, const struct attention_bwd *at);
void gpu_table_attention_decode(struct stream *s, const struct attention_decode *at);
void gpu_table_matvec(struct stream *s, const struct matvec *m);

#endif
