#include "data/text/encode_batch.h"

#include "base/grow.h"
#include "data/text/json_text.h"

#include <stdlib.h>
#include <string.h>

#define KEPT_BYTES (4u << 20) // of memory, when a batch is emptied

/* -- filling ------------------------------------------------------------------------- */

int encode_batch_append(struct encode_batch *b, const char *bytes, size_t n,
                        struct error *err)
{
    if (n == 0)
        return 0;
    if (grow_array(&b->bytes, &b->bytes_capacity, (int64_t)(b->n_bytes + n), 1))
        return error_set(err, ERROR_RUNTIME, "no memory for %zu bytes of text",
                         b->n_bytes + n);
    memcpy(b->bytes + b->n_bytes, bytes, n);
    b->n_bytes += n;
    return 0;
}

static size_t closed_bytes(const struct encode_batch *b)
{
    return b->n_records > 0 ? b->records[b->n_records - 1].bytes_end : 0;
}

size_t encode_batch_open_bytes(const struct encode_batch *b)
{
    return b->n_bytes - closed_bytes(b);
}

int encode_batch_close_record(struct encode_batch *b, size_t n,
                              enum encode_record_kind kind, const char *path,
                              int64_t line, struct error *err)
{
    CHECK(n <= encode_batch_open_bytes(b), "%zu of %zu bytes", n,
          encode_batch_open_bytes(b));
    if (grow_array(&b->records, &b->records_capacity, b->n_records + 1,
                   sizeof *b->records))
        return error_set(err, ERROR_RUNTIME, "no memory for %lld documents",
                         (long long)b->n_records + 1);
    size_t bytes_end = closed_bytes(b) + n;
    b->records[b->n_records++] = (struct encode_record){
        .kind = kind, .path = path, .line = line, .bytes_end = bytes_end};
    return 0;
}

static int make_bad(struct encode_record *r, const char *reason, struct error *err)
{
    r->kind = RECORD_BAD;
    r->reason = strdup(reason);
    return r->reason ? 0 : error_set(err, ERROR_RUNTIME, "out of memory");
}

int encode_batch_bad_line(struct encode_batch *b, const char *path, int64_t line,
                          const char *reason, struct error *err)
{
    b->n_bytes = closed_bytes(b);
    if (encode_batch_close_record(b, 0, RECORD_BAD, path, line, err))
        return -1;
    return make_bad(&b->records[b->n_records - 1], reason, err);
}

int encode_batch_move_open(struct encode_batch *to, struct encode_batch *from,
                           struct error *err)
{
    size_t closed = closed_bytes(from);
    if (encode_batch_append(to, from->bytes + closed, from->n_bytes - closed, err))
        return -1;
    from->n_bytes = closed;
    return 0;
}

/* -- encoding ------------------------------------------------------------------------ */

static int encode_json(struct encode_batch *b, struct encode_record *r, const char *line,
                       size_t n, struct encoder *e, const char *key, struct error *err)
{
    struct json_line parsed;
    int rc = 0;
    switch (json_line_read(&parsed, line, n, key, false)) {
    case JSON_LINE_TEXT:
        r->kind = RECORD_DOCUMENT;
        rc = encoder_encode(e, parsed.text, parsed.n_text, false, &b->tokens, err);
        break;
    case JSON_LINE_BLANK:
        r->kind = RECORD_BLANK;
        break;
    case JSON_LINE_BAD:
        rc = make_bad(r, parsed.reason, err);
        break;
    }
    json_line_release(&parsed);
    return rc;
}

void encode_batch_encode(struct encode_batch *b, struct encoder *e, const char *json_key,
                         bool with_special)
{
    size_t begin = 0;
    while (b->n_encoded < b->n_records) {
        struct encode_record *r = &b->records[b->n_encoded];
        const char *text = b->bytes + begin;
        size_t n = r->bytes_end - begin;
        int rc = 0;
        if (r->kind == RECORD_JSON)
            rc = encode_json(b, r, text, n, e, json_key, &b->failure);
        else if (n > 0)
            rc = encoder_encode(e, text, n, with_special, &b->tokens, &b->failure);
        if (rc) {
            b->has_failed = true;
            error_prefix(&b->failure, "'%s'", r->path);
            return;
        }
        b->n_encoded++;
        r->tokens_end = b->tokens.n;
        begin = r->bytes_end;
    }
}

/* -- the end ------------------------------------------------------------------------- */

void encode_batch_reset(struct encode_batch *b)
{
    for (int64_t i = 0; i < b->n_records; i++)
        free(b->records[i].reason);
    b->n_bytes = 0;
    b->n_records = 0;
    b->n_encoded = 0;
    b->tokens.n = 0;
    b->is_encoded = b->has_failed = false;
    if (b->bytes_capacity > (int64_t)KEPT_BYTES) {
        free(b->bytes);
        b->bytes = NULL;
        b->bytes_capacity = 0;
    }
    if ((size_t)b->tokens.capacity > KEPT_BYTES / sizeof *b->tokens.ids)
        token_list_release(&b->tokens);
}

void encode_batch_release(struct encode_batch *b)
{
    encode_batch_reset(b);
    free(b->bytes);
    free(b->records);
    token_list_release(&b->tokens);
    *b = (struct encode_batch){0};
}
