#include "train/tensorboard.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/utf8.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNWRITTEN_BYTES_MOST EVENT_BYTES_MOST
#define TEXT_BYTES ((size_t)1 << 16)
#define KEY_BYTES 256 // of a hyper-parameter

/* A number of a line of metrics.jsonl, and what it is called here. */
static const struct {
    const char *key, *tag;
} scalars[] = {
    {"loss", "train/loss"},
    {"grad_norm", "train/grad_norm"},
    {"lr", "train/lr"},
    {"loss_scale", "train/loss_scale"},
    {"tokens", "train/tokens"},
    {"ips_total", "speed/ips_total"},
    {"ips", "speed/ips"},
    {"mfu", "speed/mfu"},
    {"batch_cost", "time/batch_cost"},
    {"reader_cost", "time/reader_cost"},
    {"share_compute", "share/compute"},
    {"share_waiting", "share/waiting"},
    {"share_reader", "share/reader"},
    {"share_optimizer", "share/optimizer"},
    {"peak_memory_bytes", "memory/peak_memory_bytes"},
    {"eval_loss", "eval/loss"},
    {"eval_cost", "eval/cost"},
};

/* -- writing ------------------------------------------------------------------------- */

/* Write the record that is complete now, behind those that wait. */
static void write_event(struct tensorboard *tb)
{
    bool waits = tb->n_unwritten > 0;
    if (!event_end(&tb->event)) {
        tb->n_lost++;
        return;
    }
    if (!waits && event_file_write(&tb->file, tb->event.bytes, tb->event.n) == 0)
        return;
    if (!waits)
        log_warning("cannot write '%s': %s; what is to be written there is kept until "
                    "it can be",
                    tb->file.path, strerror(errno));
    if (tb->event.n > UNWRITTEN_BYTES_MOST - tb->n_unwritten) {
        tb->n_lost++;
    } else {
        memcpy(tb->unwritten + tb->n_unwritten, tb->event.bytes, tb->event.n);
        tb->n_unwritten += tb->event.n;
    }
    if (waits && event_file_write(&tb->file, tb->unwritten, tb->n_unwritten) == 0)
        tb->n_unwritten = 0;
}

/* -- the beginning ------------------------------------------------------------------- */

static void put_hparam(struct event_record *e, const char *key, const json_t *value)
{
    if (json_is_number(value))
        event_hparam_number(e, key, json_number_value(value));
    else if (json_is_boolean(value))
        event_hparam_bool(e, key, json_is_true(value));
    else if (json_is_string(value))
        event_hparam_text(e, key, json_string_value(value));
    else if (json_is_array(value)) {
        char *text = json_dumps(value, 0);
        event_hparam_text(e, key, text ? text : "");
        free(text);
    }
}

/* Keys of sections are "Section.key", at any depth. */
static void put_hparams(struct event_record *e, const char *prefix, json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        char key[KEY_BYTES];
        snprintf(key, sizeof key, "%s%s%s", prefix, prefix[0] ? "." : "", name);
        if (json_is_object(value))
            put_hparams(e, key, value); // NOLINT(misc-no-recursion): as deep as the table
        else
            put_hparam(e, key, value);
    }
}

static void write_beginning(struct tensorboard *tb, int64_t first_step,
                            const char *config_json)
{
    struct record now;
    record_begin(&now, 0);
    event_begin(&tb->event, now.time, 0);
    event_version(&tb->event);
    write_event(tb);
    event_begin(&tb->event, now.time, first_step > 0 ? first_step + 1 : 0);
    event_session_start(&tb->event);
    write_event(tb);
    json_t *config = json_loads(config_json, 0, NULL);
    if (!config)
        return;
    event_begin(&tb->event, now.time, 0);
    struct event_hparams list = event_hparams_begin(&tb->event, now.time);
    put_hparams(&tb->event, "", config);
    event_hparams_end(&tb->event, &list);
    write_event(tb);
    json_decref(config);
}

int tensorboard_open(struct tensorboard *tb, const char *output_dir, int64_t first_step,
                     const char *config_json, struct error *err)
{
    char dir[PATH_MAX], previous[PATH_MAX];
    *tb = (struct tensorboard){.file = {.fd = -1}, .sample_step = -1};
    tb->unwritten = malloc(UNWRITTEN_BYTES_MOST);
    tb->text = malloc(TEXT_BYTES);
    if (!tb->unwritten || !tb->text)
        return error_set(err, ERROR_RUNTIME, "out of memory for TensorBoard's records");
    if (event_open(&tb->event, err) ||
        fs_join(dir, sizeof dir, output_dir, "tensorboard", err) ||
        fs_join(previous, sizeof previous, output_dir, "tensorboard.previous", err))
        return -1;
    if (first_step > 0 ? event_file_repair(&tb->event, dir, err)
                       : event_file_set_aside(dir, previous, err))
        return -1;
    if (event_file_open(&tb->file, dir, err))
        return -1;
    write_beginning(tb, first_step, config_json);
    return 0;
}

void tensorboard_close(struct tensorboard *tb)
{
    if (tb->n_unwritten > 0 &&
        event_file_write(&tb->file, tb->unwritten, tb->n_unwritten))
        log_warning("the last records of '%s' are lost: %s", tb->file.path,
                    strerror(errno));
    if (tb->n_lost > 0)
        log_warning("'%s' lacks %lld records that the disk did not take", tb->file.path,
                    (long long)tb->n_lost);
    if (tb->event.bytes)
        event_file_close(&tb->file);
    event_close(&tb->event);
    free(tb->unwritten);
    free(tb->text);
    *tb = (struct tensorboard){.file = {.fd = -1}};
}

/* -- records ------------------------------------------------------------------------- */

static void take_scalars(struct tensorboard *tb, const struct record *r)
{
    int n = 0;
    event_begin(&tb->event, r->time, r->step);
    for (int i = 0; i < r->n_fields; i++) {
        const struct record_field *f = &r->fields[i];
        if (f->type == RECORD_GROUP)
            break; // its numbers are of ranks, not of the run
        if (f->type != RECORD_REAL && f->type != RECORD_INT)
            continue;
        double value = f->type == RECORD_INT ? (double)f->value.integer
                                             : record_as_read(f->value.real);
        for (size_t s = 0; s < ARRAY_LEN(scalars); s++)
            if (strcmp(f->key, scalars[s].key) == 0) {
                event_scalar(&tb->event, scalars[s].tag, (float)value);
                n++;
            }
    }
    if (n > 0)
        write_event(tb);
}

/* Markdown that shows the lines as they are: each is indented. What is no UTF-8 is shown
 * by question marks, as in metrics.jsonl. */
static size_t put_lines(char *out, size_t at, const char *text)
{
    static const char indent[] = "\n    ";
    size_t left = strlen(text), n;
    uint32_t code;
    for (bool is_start = true;
         left > 0 && at + sizeof indent + UTF8_MOST_BYTES < TEXT_BYTES;
         text += n, left -= n) {
        n = utf8_decode(text, left, &code);
        if (is_start || *text == '\n') {
            memcpy(out + at, indent, sizeof indent - 1);
            at += sizeof indent - 1;
        }
        is_start = false;
        if (n == 0)
            out[at++] = '?';
        else if (*text != '\n') {
            memcpy(out + at, text, n);
            at += n;
        }
        n += n == 0;
    }
    if (at < TEXT_BYTES)
        out[at++] = '\n';
    return at;
}

static void take_sample(struct tensorboard *tb, const struct record *r)
{
    const char *prompt = record_find_text(r, "prompt"),
               *text = record_find_text(r, "text");
    char tag[32];
    if (!prompt || !text)
        return;
    if (r->step != tb->sample_step)
        tb->n_samples = 0;
    tb->sample_step = r->step;
    snprintf(tag, sizeof tag, "samples/%d", ++tb->n_samples);
    size_t n = (size_t)snprintf(tb->text, TEXT_BYTES, "Prompt:\n");
    n = put_lines(tb->text, n, prompt);
    n += (size_t)snprintf(tb->text + n, TEXT_BYTES - n, "\nText:\n");
    n = n < TEXT_BYTES ? put_lines(tb->text, n, text) : TEXT_BYTES - 1;
    event_begin(&tb->event, r->time, r->step);
    event_text(&tb->event, tag, tb->text, n);
    write_event(tb);
}

int tensorboard_buckets(struct event_bucket rows[TENSORBOARD_BUCKETS],
                        const double *values, int64_t n)
{
    double least = (double)INFINITY, most = -(double)INFINITY, n_finite = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(values[i])) {
            least = fmin(least, values[i]);
            most = fmax(most, values[i]);
            n_finite++;
        }
    if (n_finite < 1)
        return 0;
    double width = (most - least) / TENSORBOARD_BUCKETS;
    if (!(width > 0) || !isfinite(width)) {
        rows[0] = (struct event_bucket){least - 0.5, least + 0.5, n_finite};
        return 1;
    }
    for (int i = 0; i < TENSORBOARD_BUCKETS; i++)
        rows[i] = (struct event_bucket){least + width * i, least + width * (i + 1), 0};
    rows[TENSORBOARD_BUCKETS - 1].right = most;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(values[i])) {
            int64_t at = (int64_t)((values[i] - least) / width);
            rows[i64_min(at, TENSORBOARD_BUCKETS - 1)].count++;
        }
    return TENSORBOARD_BUCKETS;
}

static void take_layers(struct tensorboard *tb, const struct record *r)
{
    struct event_bucket rows[TENSORBOARD_BUCKETS];
    const struct record_field *norms = record_find(r, "grad_norms");
    if (!norms || norms->type != RECORD_REALS)
        return;
    int n_rows = tensorboard_buckets(rows, norms->value.reals, norms->n);
    event_begin(&tb->event, r->time, r->step);
    event_histogram(&tb->event, "gradients/norms_of_layers", rows, n_rows);
    write_event(tb);
}

static void take_end(struct tensorboard *tb, const struct record *r,
                     enum event_status status)
{
    event_begin(&tb->event, r->time, r->step);
    event_session_end(&tb->event, status, r->time);
    write_event(tb);
}

void tensorboard_take(struct tensorboard *tb, const struct record *r)
{
    const char *event = record_find_text(r, "event");
    if (!event)
        take_scalars(tb, r);
    else if (strcmp(event, "sample") == 0)
        take_sample(tb, r);
    else if (strcmp(event, "layers") == 0)
        take_layers(tb, r);
    else if (strcmp(event, "end") == 0)
        take_end(tb, r, EVENT_SUCCEEDED);
    else if (strcmp(event, "failure") == 0)
        take_end(tb, r, EVENT_FAILED);
}
