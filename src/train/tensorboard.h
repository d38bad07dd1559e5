/*
 * tensorboard - output_dir/tensorboard: what TensorBoard, and all that reads its files,
 * shows of a run.
 *
 *     train/, speed/, time/, share/, memory/, eval/    the numbers of metrics.jsonl, in
 *                                                      float32 as they are read there
 *     gradients/norms_of_layers                        a histogram: one value a layer
 *     samples/N                                        the text that prompt N gave
 *     hyper-parameters                                 every key of the configuration
 *
 * Every start of a run begins a file. Its second record makes void what older files have
 * of the steps that come now, as metrics.jsonl drops those lines. A fresh run moves the
 * files of an older one to output_dir/tensorboard.previous.
 *
 * What a full disk does not take is kept and written later, up to a megabyte.
 */
#ifndef TRAIN_TENSORBOARD_H
#define TRAIN_TENSORBOARD_H

#include "base/base.h"
#include "base/error.h"
#include "train/event_file.h"
#include "train/record.h"

struct tensorboard {
    struct event_record event;
    struct event_file file;
    uint8_t *unwritten; // whole records that the file still lacks
    size_t n_unwritten;
    int64_t n_lost; // records
    char *text;     // of a sample, as Markdown
    int64_t sample_step;
    int n_samples; // of that step, so far
};

/* config_json: the configuration, for the hyper-parameters. A failed one may be closed. */
MUST_CHECK int tensorboard_open(struct tensorboard *tb, const char *output_dir,
                                int64_t first_step, const char *config_json,
                                struct error *err);
/* Records that were lost are told of. One that was not opened, too. */
void tensorboard_close(struct tensorboard *tb);

void tensorboard_take(struct tensorboard *tb, const struct record *r);

/* The n values in at most TENSORBOARD_BUCKETS buckets of the same width; how many. */
#define TENSORBOARD_BUCKETS 30
int tensorboard_buckets(struct event_bucket rows[TENSORBOARD_BUCKETS],
                        const double *values, int64_t n);

#endif
