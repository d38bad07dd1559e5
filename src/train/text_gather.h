/*
 * text_gather - generated texts of all data ranks, reported by rank 0 in order, each as
 * soon as it and all before it are complete.
 *
 * Texts are dealt to the data ranks: text i is data rank i % data_size's. The first process
 * of each model sends its texts one after the other, so that rank 0 can receive them in the
 * order in which it reports. Sends and receives go on beside the computing.
 */
#ifndef TRAIN_TEXT_GATHER_H
#define TRAIN_TEXT_GATHER_H

#include "comm/grid.h"
#include "model/gpt_generate.h"

struct text_gather_message; // one text, to rank 0

struct text_completion { // what follows a prompt
    const int32_t *ids;
    int64_t n;
    bool is_ended;
};

struct text_gather { // zero-initialised is closed
    /* The caller's; pointers are borrowed. */
    const struct gpt_text *texts; // (n_texts) this data rank's, in order
    int64_t n_texts, n_all;       // of all data ranks
    int (*on_text)(void *context, int64_t i, const struct text_completion *c,
                   struct error *err); // on rank 0
    void *context;

    struct comm *data;
    bool is_active;    // this process reports or sends
    bool *is_complete; // (n_texts) owned
    int64_t n_done;    // texts reported; elsewhere, own texts sent
    int64_t header[2]; // of the text that rank 0 waits for
    bool is_waiting;   // it does
    struct comm_request request;
    struct text_gather_message *messages; // (n_texts) of a process that sends, owned
};

/* text_gather_close() takes a half-opened one. (local) */
MUST_CHECK int text_gather_open(struct text_gather *g, const struct grid *grid,
                                struct error *err);
void text_gather_close(struct text_gather *g);

/* This process reports. */
bool text_gather_is_first(const struct text_gather *g);
/* Now and then: report or send what has become complete meanwhile, here or elsewhere. */
MUST_CHECK int text_gather_advance(struct text_gather *g, struct error *err);
/* An own text is complete. */
MUST_CHECK int text_gather_add(struct text_gather *g, const struct gpt_text *text,
                               struct error *err);
/* All own texts are: wait until all are reported. [collective over the data ranks] */
MUST_CHECK int text_gather_finish(struct text_gather *g, struct error *err);

#endif
