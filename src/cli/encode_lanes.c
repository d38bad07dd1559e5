#include "cli/encode_lanes.h"

#include <omp.h>
#include <stdlib.h>

#define MOST_LANES 64
#define ID_TEXT_BYTES 11 // a space and ten digits

struct lane { // what one thread works on
    struct encoder *encoder;
    const char *piece; // of the text
    size_t n_piece;
    struct token_list ids;
    char *out; // the ids as text
    size_t n_out, out_capacity;
    int rc;
    struct error err;
};

struct encode_lanes {
    bool with_special;
    bool is_first; // nothing has been put out
    int n_lanes;
    struct lane lanes[MOST_LANES];
};

int encode_lanes_open(struct encode_lanes **out, const struct tokenizer *t,
                      bool with_special, struct error *err)
{
    struct encode_lanes *lanes = calloc(1, sizeof *lanes);
    *out = NULL;
    if (!lanes)
        return error_set(err, ERROR_RUNTIME, "out of memory for encoding");
    lanes->with_special = with_special;
    lanes->is_first = true;
    lanes->n_lanes = (int)i64_min(omp_get_max_threads(), MOST_LANES);
    for (int i = 0; i < lanes->n_lanes; i++)
        if (encoder_open(&lanes->lanes[i].encoder, t, err)) {
            encode_lanes_close(lanes);
            return -1;
        }
    *out = lanes;
    return 0;
}

void encode_lanes_close(struct encode_lanes *lanes)
{
    if (!lanes)
        return;
    for (int i = 0; i < lanes->n_lanes; i++) {
        encoder_close(lanes->lanes[i].encoder);
        token_list_release(&lanes->lanes[i].ids);
        free(lanes->lanes[i].out);
    }
    free(lanes);
}

size_t encode_lanes_last_cut(const struct encode_lanes *lanes, const char *text, size_t n)
{
    return encoder_last_cut(lanes->lanes[0].encoder, text, n, lanes->with_special);
}

/* Give each lane about the same; one gets nothing where the text cannot be cut. */
static void share_out(struct encode_lanes *lanes, const char *text, size_t n)
{
    size_t at = 0;
    for (int i = 0; i < lanes->n_lanes; i++) {
        bool is_last = i + 1 == lanes->n_lanes;
        size_t end = n / (size_t)lanes->n_lanes * (size_t)(i + 1);
        size_t n_piece = is_last    ? n - at
                         : end > at ? encode_lanes_last_cut(lanes, text + at, end - at)
                                    : 0;
        lanes->lanes[i].piece = text + at;
        lanes->lanes[i].n_piece = n_piece;
        at += n_piece;
    }
}

/* The digits of an id after a space. Returns their end. */
static char *print_id(char *at, int32_t id)
{
    char digits[ID_TEXT_BYTES];
    int n = 0;
    do {
        digits[n++] = (char)('0' + id % 10);
        id /= 10;
    } while (id > 0);
    *at++ = ' ';
    while (n > 0)
        *at++ = digits[--n];
    return at;
}

static int encode_piece(struct lane *lane, bool with_special, struct error *err)
{
    lane->ids.n = 0;
    lane->n_out = 0;
    if (encoder_encode(lane->encoder, lane->piece, lane->n_piece, with_special,
                       &lane->ids, err))
        return -1;
    size_t need = (size_t)lane->ids.n * ID_TEXT_BYTES;
    if (need > lane->out_capacity) {
        need += need / 2; // so that the next piece fits, most likely
        free(lane->out);
        lane->out = malloc(need);
        lane->out_capacity = lane->out ? need : 0;
        if (!lane->out)
            return error_set(err, ERROR_RUNTIME, "out of memory for %lld ids",
                             (long long)lane->ids.n);
    }
    char *at = lane->out;
    for (int64_t i = 0; i < lane->ids.n; i++)
        at = print_id(at, lane->ids.ids[i]);
    lane->n_out = (size_t)(at - lane->out);
    return 0;
}

int encode_lanes_encode(struct encode_lanes *lanes, const char *text, size_t n,
                        int (*put)(void *context, const char *bytes, size_t n,
                                   struct error *err),
                        void *context, struct error *err)
{
    share_out(lanes, text, n);
#pragma omp parallel for schedule(static, 1) num_threads(lanes->n_lanes)
    for (int i = 0; i < lanes->n_lanes; i++)
        lanes->lanes[i].rc =
            encode_piece(&lanes->lanes[i], lanes->with_special, &lanes->lanes[i].err);
    for (int i = 0; i < lanes->n_lanes; i++) {
        const struct lane *lane = &lanes->lanes[i];
        if (lane->rc)
            return error_set(err, lane->err.kind, "%s", lane->err.text);
        if (lane->n_out == 0)
            continue;
        if (put(context, lane->out + lanes->is_first, lane->n_out - lanes->is_first, err))
            return -1;
        lanes->is_first = false;
    }
    return 0;
}
