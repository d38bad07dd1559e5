#include "train/text_gather.h"

#include <stdlib.h>

enum { HEADER_N, HEADER_IS_ENDED, HEADER_WORDS };
enum { TAG_HEADER, TAG_IDS };

struct text_gather_message {
    int64_t header[HEADER_WORDS];
    struct comm_request requests[2];
};

static struct text_completion completion_of(const struct gpt_text *text)
{
    return (struct text_completion){.ids = text->tokens + text->n_prompt,
                                    .n = text->n_tokens - text->n_prompt,
                                    .is_ended = text->is_ended};
}

int text_gather_open(struct text_gather *g, const struct grid *grid, struct error *err)
{
    size_t n = (size_t)g->n_texts + 1;
    g->data = grid->data;
    g->is_active = grid->coord.pp == 0 && grid->coord.mp == 0;
    g->is_complete = calloc(n, sizeof *g->is_complete);
    g->messages = calloc(n, sizeof *g->messages);
    if (!g->is_complete || !g->messages)
        return error_set(err, ERROR_RUNTIME, "out of memory for %zu texts", n);
    return 0;
}

void text_gather_close(struct text_gather *g)
{
    free(g->is_complete);
    free(g->messages);
    *g = (struct text_gather){.n_done = 0};
}

bool text_gather_is_first(const struct text_gather *g)
{
    return g->is_active && comm_rank(g->data) == 0;
}

/* -- rank 0: everything in order ----------------------------------------------------- */

/* Data rank `owner` has sent the header of text n_done: receive the rest, and report. */
static int report_received(struct text_gather *g, int owner, struct error *err)
{
    struct comm_request req;
    int64_t n = g->header[HEADER_N];
    int32_t *ids = malloc((size_t)n * sizeof *ids + 1);
    if (!ids)
        return error_set(err, ERROR_RUNTIME, "out of memory for %lld tokens",
                         (long long)n);
    int rc = 0;
    if (n > 0) {
        comm_recv_bytes_start(g->data, ids, n * (int64_t)sizeof *ids, owner, TAG_IDS,
                              &req);
        rc = comm_wait(&req, err);
    }
    struct text_completion c = {ids, n, g->header[HEADER_IS_ENDED] != 0};
    if (rc == 0)
        rc = g->on_text(g->context, g->n_done, &c, err);
    free(ids);
    return rc;
}

/* Text n_done is another data rank's. *is_here: it was complete, and was reported. */
static int report_other(struct text_gather *g, int owner, bool may_wait, bool *is_here,
                        struct error *err)
{
    if (!g->is_waiting)
        comm_recv_bytes_start(g->data, g->header, sizeof g->header, owner, TAG_HEADER,
                              &g->request);
    g->is_waiting = true;
    *is_here = may_wait || comm_test(&g->request);
    if (!*is_here)
        return 0;
    g->is_waiting = false;
    return comm_wait(&g->request, err) || report_received(g, owner, err) ? -1 : 0;
}

/* Up to the first text that is not complete; may_wait: those of other data ranks are
 * waited for. */
static int report_ready(struct text_gather *g, bool may_wait, struct error *err)
{
    int size = comm_size(g->data);
    bool is_here = true;
    while (g->n_done < g->n_all) {
        int owner = (int)(g->n_done % size);
        int64_t own = g->n_done / size;
        if (owner != 0) {
            if (report_other(g, owner, may_wait, &is_here, err))
                return -1;
        } else {
            struct text_completion c = completion_of(&g->texts[own]);
            is_here = g->is_complete[own];
            if (is_here && g->on_text(g->context, g->n_done, &c, err))
                return -1;
        }
        if (!is_here)
            return 0;
        g->n_done++;
    }
    return 0;
}

/* -- other data ranks: own texts in order -------------------------------------------- */

static void send_text(struct text_gather *g, int64_t i)
{
    struct text_gather_message *m = &g->messages[i];
    struct text_completion c = completion_of(&g->texts[i]);
    m->header[HEADER_N] = c.n;
    m->header[HEADER_IS_ENDED] = c.is_ended;
    comm_send_bytes_start(g->data, m->header, sizeof m->header, 0, TAG_HEADER,
                          &m->requests[0]);
    if (c.n > 0)
        comm_send_bytes_start(g->data, c.ids, c.n * (int64_t)sizeof *c.ids, 0, TAG_IDS,
                              &m->requests[1]);
}

static int wait_for_sends(struct text_gather *g, struct error *err)
{
    int rc = 0;
    for (int64_t i = 0; i < g->n_done; i++) {
        struct text_gather_message *m = &g->messages[i];
        if (comm_wait(&m->requests[0], err) ||
            (m->header[HEADER_N] > 0 && comm_wait(&m->requests[1], err)))
            rc = -1;
    }
    return rc;
}

/* -- either -------------------------------------------------------------------------- */

int text_gather_advance(struct text_gather *g, struct error *err)
{
    if (!g->is_active)
        return 0;
    if (comm_rank(g->data) == 0)
        return report_ready(g, false, err);
    while (g->n_done < g->n_texts && g->is_complete[g->n_done])
        send_text(g, g->n_done++);
    comm_progress(g->data);
    return 0;
}

int text_gather_add(struct text_gather *g, const struct gpt_text *text, struct error *err)
{
    g->is_complete[text - g->texts] = true;
    return text_gather_advance(g, err);
}

int text_gather_finish(struct text_gather *g, struct error *err)
{
    if (text_gather_is_first(g))
        return report_ready(g, true, err);
    return g->is_active ? wait_for_sends(g, err) : 0;
}
