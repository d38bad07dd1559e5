#include "data/text/token_sink.h"

#include "base/fs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 65536
#define ID_BYTES 11 // a space and ten digits

struct token_text {
    int fd;
    const char *name;
    bool has_ids;
    size_t n;
    char bytes[TEXT_BYTES];
};

/* -- ids as text --------------------------------------------------------------------- */

int token_text_open(struct token_text **out, int fd, const char *name, struct error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    (*out)->fd = fd;
    (*out)->name = name;
    return 0;
}

static int flush_text(struct token_text *t, struct error *err)
{
    if (fs_write_exact(t->fd, t->bytes, t->n))
        return error_set(err, ERROR_RUNTIME, "cannot write %s: %s", t->name,
                         strerror(errno));
    t->n = 0;
    return 0;
}

static void print_id(struct token_text *t, int32_t id)
{
    char digits[ID_BYTES];
    int n = 0;
    do {
        digits[n++] = (char)('0' + id % 10);
        id /= 10;
    } while (id > 0);
    if (t->has_ids)
        t->bytes[t->n++] = ' ';
    t->has_ids = true;
    while (n > 0)
        t->bytes[t->n++] = digits[--n];
}

static int print_ids(struct token_text *t, const int32_t *ids, int64_t n,
                     struct error *err)
{
    for (int64_t i = 0; i < n; i++) {
        if (t->n > TEXT_BYTES - ID_BYTES && flush_text(t, err))
            return -1;
        print_id(t, ids[i]);
    }
    return 0;
}

int token_text_finish(struct token_text *t, struct error *err)
{
    if (t->n == TEXT_BYTES && flush_text(t, err))
        return -1;
    t->bytes[t->n++] = '\n';
    return flush_text(t, err);
}

void token_text_close(struct token_text *t)
{
    free(t);
}

/* -- either -------------------------------------------------------------------------- */

int token_sink_append(struct token_sink *s, const int32_t *tokens, int64_t n,
                      struct error *err)
{
    if (s->dataset)
        return dataset_writer_append(s->dataset, tokens, n, err);
    return s->list ? token_list_append(s->list, tokens, n, err)
                   : print_ids(s->text, tokens, n, err);
}

int token_sink_end_document(struct token_sink *s, struct error *err)
{
    if (s->eos < 0)
        return 0;
    if (token_sink_append(s, &s->eos, 1, err))
        return -1;
    return s->dataset ? dataset_writer_end_document(s->dataset, err) : 0;
}
