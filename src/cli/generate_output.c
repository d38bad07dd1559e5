#include "cli/generate_output.h"

#include "cli/options.h"
#include "cli/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_N, HEADER_IS_ENDED, HEADER_WORDS };
enum { TAG_HEADER, TAG_IDS };

struct generate_message {
    int64_t header[HEADER_WORDS];
    struct comm_request requests[2];
};

struct completion { // what follows a prompt
    const int32_t *ids;
    int64_t n;
    bool is_ended;
};

static struct completion completion_of(const struct gpt_text *text)
{
    return (struct completion){.ids = text->tokens + text->n_prompt,
                               .n = text->n_tokens - text->n_prompt,
                               .is_ended = text->is_ended};
}

/* -- opening ------------------------------------------------------------------------- */

int generate_output_open(struct generate_output *out, const struct grid *grid,
                         struct error *err)
{
    size_t n = (size_t)out->prompts->n_texts + 1;
    out->data = grid->data;
    out->is_active = grid->coord.pp == 0 && grid->coord.mp == 0;
    out->is_complete = calloc(n, sizeof *out->is_complete);
    out->messages = calloc(n, sizeof *out->messages);
    if (!out->is_complete || !out->messages)
        return error_set(err, ERROR_RUNTIME, "out of memory for %zu texts", n);
    return 0;
}

void generate_output_close(struct generate_output *out)
{
    free(out->is_complete);
    free(out->messages);
    *out = (struct generate_output){.n_done = 0};
}

/* -- printing ------------------------------------------------------------------------ */

static void print_id(const struct generate_output *out, int32_t id)
{
    size_t n = 0;
    if (!out->tokenizer) {
        printf("%d ", id);
    } else if (!tokenizer_is_special(out->tokenizer, id)) {
        const char *bytes = tokenizer_token_bytes(out->tokenizer, id, &n);
        if (bytes)
            fwrite(bytes, 1, n, stdout);
    }
}

/* Prompts that are ids are not repeated. */
static void print_prompt(const struct generate_output *out, int64_t i)
{
    size_t n;
    const char *prompt = generate_prompts_at(out->prompts, i, &n);
    if (i > 0)
        putchar('\n');
    if (out->tokenizer)
        fwrite(prompt, 1, n, stdout);
}

/* What follows the prompt, as text; NULL: out of memory. */
static json_t *completion_text(const struct generate_output *out,
                               const struct completion *c)
{
    size_t n = tokenizer_decode(out->tokenizer, c->ids, c->n, NULL, 0);
    char *bytes = malloc(n + 1);
    if (!bytes)
        return NULL;
    tokenizer_decode(out->tokenizer, c->ids, c->n, bytes, n);
    json_t *text = report_text(bytes, n);
    free(bytes);
    return text;
}

static int print_json(const struct generate_output *out, int64_t i,
                      const struct completion *c, struct error *err)
{
    size_t n;
    const char *prompt = generate_prompts_at(out->prompts, i, &n);
    json_t *text = out->tokenizer ? completion_text(out, c) : json_null();
    if (!text)
        return error_set(err, ERROR_RUNTIME, "out of memory for a continuation");
    json_t *object = json_object(), *ids = json_array();
    for (int64_t k = 0; k < c->n; k++)
        report_append(ids, json_integer(c->ids[k]));
    report_set_int(object, "index", i);
    report_set(object, "prompt", report_text(prompt, n));
    report_set(object, "completion", text);
    report_set(object, "ids", ids);
    report_set(object, "stop", json_string(c->is_ended ? "eos" : "length"));
    json_dumpf(object, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(object);
    return 0;
}

static int print_completion(struct generate_output *out, int64_t i,
                            const struct completion *c, struct error *err)
{
    if (out->is_json) {
        if (print_json(out, i, c, err))
            return -1;
    } else {
        if (!out->is_streamed)
            print_prompt(out, i);
        for (int64_t k = 0; k < c->n && !out->is_streamed; k++)
            print_id(out, c->ids[k]);
        putchar('\n');
    }
    return print_check("to standard output", err);
}

/* -- rank 0: everything in order ----------------------------------------------------- */

/* Data rank `owner` has sent the header of prompt n_done; take the rest, and print. */
static int print_received(struct generate_output *out, int owner, struct error *err)
{
    struct comm_request req;
    int64_t n = out->header[HEADER_N];
    int32_t *ids = malloc((size_t)n * sizeof *ids + 1);
    if (!ids)
        return error_set(err, ERROR_RUNTIME, "out of memory for %lld tokens",
                         (long long)n);
    int rc = 0;
    if (n > 0) {
        comm_recv_bytes_start(out->data, ids, n * (int64_t)sizeof *ids, owner, TAG_IDS,
                              &req);
        rc = comm_wait(&req, err);
    }
    struct completion c = {ids, n, out->header[HEADER_IS_ENDED] != 0};
    if (rc == 0)
        rc = print_completion(out, out->n_done, &c, err);
    free(ids);
    return rc;
}

/* Prompt n_done is another data rank's. *is_here: it was complete, and was printed. */
static int print_other(struct generate_output *out, int owner, bool may_wait,
                       bool *is_here, struct error *err)
{
    if (!out->is_waiting)
        comm_recv_bytes_start(out->data, out->header, sizeof out->header, owner,
                              TAG_HEADER, &out->request);
    out->is_waiting = true;
    *is_here = may_wait || comm_test(&out->request);
    if (!*is_here)
        return 0;
    out->is_waiting = false;
    return comm_wait(&out->request, err) || print_received(out, owner, err) ? -1 : 0;
}

/* Print what is complete, up to the first prompt that is not; may_wait: other data ranks'
 * prompts are waited for. */
static int print_ready(struct generate_output *out, bool may_wait, struct error *err)
{
    int size = comm_size(out->data);
    bool is_here = true;
    while (out->n_done < out->prompts->n_prompts) {
        int owner = (int)(out->n_done % size);
        int64_t own = out->n_done / size;
        if (owner != 0) {
            if (print_other(out, owner, may_wait, &is_here, err))
                return -1;
        } else {
            struct completion c = completion_of(&out->prompts->texts[own]);
            is_here = out->is_complete[own];
            if (is_here && print_completion(out, out->n_done, &c, err))
                return -1;
        }
        if (!is_here)
            return 0;
        out->n_done++;
    }
    return 0;
}

/* -- other data ranks: own texts in order -------------------------------------------- */

static void send_text(struct generate_output *out, int64_t i)
{
    struct generate_message *m = &out->messages[i];
    struct completion c = completion_of(&out->prompts->texts[i]);
    m->header[HEADER_N] = c.n;
    m->header[HEADER_IS_ENDED] = c.is_ended;
    comm_send_bytes_start(out->data, m->header, sizeof m->header, 0, TAG_HEADER,
                          &m->requests[0]);
    if (c.n > 0)
        comm_send_bytes_start(out->data, c.ids, c.n * (int64_t)sizeof *c.ids, 0, TAG_IDS,
                              &m->requests[1]);
}

static void send_ready(struct generate_output *out)
{
    while (out->n_done < out->prompts->n_texts && out->is_complete[out->n_done])
        send_text(out, out->n_done++);
    comm_progress(out->data);
}

static int wait_for_sends(struct generate_output *out, struct error *err)
{
    int rc = 0;
    for (int64_t i = 0; i < out->n_done; i++) {
        struct generate_message *m = &out->messages[i];
        if (comm_wait(&m->requests[0], err) ||
            (m->header[HEADER_N] > 0 && comm_wait(&m->requests[1], err)))
            rc = -1;
    }
    return rc;
}

/* -- calls of gpt_generate() --------------------------------------------------------- */

static bool is_printing(const struct generate_output *out)
{
    return out->is_active && comm_rank(out->data) == 0;
}

void generate_output_begin(const struct generate_output *out)
{
    if (!is_printing(out) || !out->is_streamed)
        return;
    print_prompt(out, 0);
    fflush(stdout);
}

/* What has become complete meanwhile, here or elsewhere. */
static int advance(struct generate_output *out, struct error *err)
{
    if (is_printing(out))
        return print_ready(out, false, err);
    if (out->is_active)
        send_ready(out);
    return 0;
}

int generate_output_token(void *context, const struct gpt_text *text, int32_t id,
                          struct error *err)
{
    struct generate_output *out = context;
    (void)text;
    if (!out->is_streamed)
        return advance(out, err);
    if (!is_printing(out))
        return 0;
    print_id(out, id);
    return print_check("to standard output", err);
}

int generate_output_text(void *context, const struct gpt_text *text, struct error *err)
{
    struct generate_output *out = context;
    out->is_complete[text - out->prompts->texts] = true;
    return advance(out, err);
}

int generate_output_finish(struct generate_output *out, struct error *err)
{
    if (is_printing(out))
        return print_ready(out, true, err);
    return out->is_active ? wait_for_sends(out, err) : 0;
}
