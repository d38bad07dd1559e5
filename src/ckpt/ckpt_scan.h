/* ckpt_scan - the names of checkpoints, and which of them a directory holds. */
#ifndef CKPT_CKPT_SCAN_H
#define CKPT_CKPT_SCAN_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/ckpt_manifest.h"

#define CKPT_NAME_BYTES 64

struct ckpt_name {
    int64_t epoch;
    int64_t step;
    char text[CKPT_NAME_BYTES]; // "epoch_E_step_N"
};

struct ckpt_list { // by step, newest first
    struct ckpt_name *names;
    int64_t n_names;
};

struct ckpt_name ckpt_name_make(int64_t epoch, int64_t step);
/* False unless `text` is exactly a name that ckpt_name_make() makes. */
bool ckpt_name_parse(const char *text, struct ckpt_name *name);

MUST_CHECK int ckpt_scan(const char *dir, struct ckpt_list *list, struct error *err);
void ckpt_list_release(struct ckpt_list *list);

/* Whether dir/name is a checkpoint that says of itself what its name says: files of the
 * right sizes, and with `is_deep` every byte as recorded. */
MUST_CHECK int ckpt_check(const char *dir, const struct ckpt_name *name, bool is_deep,
                          struct error *err);

#endif
