/*
 * generate_output - what `trefoil generate` prints: for each prompt in order, as soon as
 * it and all before it are complete, or, for one prompt alone, token by token.
 *
 * Rank 0 of the job prints. Prompts are dealt to the data ranks (prompt i is data rank i
 * % data_size's), and of those the first process of each model sends what it has: its
 * texts one after the other, so that rank 0 can take them in the order it prints. Sends
 * and receives go on beside the computing.
 */
#ifndef CLI_GENERATE_OUTPUT_H
#define CLI_GENERATE_OUTPUT_H

#include "cli/generate_prompts.h"
#include "comm/grid.h"

struct generate_message; // of one text, to rank 0

struct generate_output {                    // zero-initialised is closed
    const struct generate_prompts *prompts; // borrowed, as all pointers before `header`
    const struct tokenizer *tokenizer;      // NULL: ids are printed
    struct comm *data;                      // the data ranks; rank 0 prints
    bool is_json;
    bool is_streamed; // one prompt, printed token by token

    bool is_active;    // this process prints or sends
    bool *is_complete; // (n_texts) of this process's own, owned
    int64_t n_done;    // prompts printed; elsewhere, own texts sent
    int64_t header[2]; // of the text that rank 0 waits for
    bool is_waiting;   // it does
    struct comm_request request;
    struct generate_message *messages; // (n_texts) of a process that sends, owned
};

/* After the prompts are encoded; the members up to is_streamed are the caller's.
 * generate_output_close() takes a half-opened one. (local) */
MUST_CHECK int generate_output_open(struct generate_output *out, const struct grid *grid,
                                    struct error *err);
void generate_output_close(struct generate_output *out);

/* Before the first token: print the prompt, if it is streamed. */
void generate_output_begin(const struct generate_output *out);
/* What gpt_generate() calls. `context` is the output. */
MUST_CHECK int generate_output_token(void *context, const struct gpt_text *text,
                                     int32_t id, struct error *err);
MUST_CHECK int generate_output_text(void *context, const struct gpt_text *text,
                                    struct error *err);
/* Own texts are complete: wait until all is printed. [collective over the data ranks] */
MUST_CHECK int generate_output_finish(struct generate_output *out, struct error *err);

#endif
