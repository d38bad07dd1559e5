/*
 * Messages are written front to back; the length of an inner one is put before it when it
 * is complete, which moves it by the one to three bytes that a length has.
 */
#include "train/event_record.h"

#include <stdlib.h>
#include <string.h>

// keys of fields: number << 3 | wire type
#define WIRE_VARINT 0
#define WIRE_8_BYTES 1
#define WIRE_BYTES 2
#define WIRE_4_BYTES 5
#define EVENT_WALL_TIME (1 << 3 | WIRE_8_BYTES)
#define EVENT_STEP (2 << 3 | WIRE_VARINT)
#define EVENT_VERSION (3 << 3 | WIRE_BYTES)
#define EVENT_SUMMARY (5 << 3 | WIRE_BYTES)
#define EVENT_SESSION_LOG (7 << 3 | WIRE_BYTES)
#define SESSION_STATUS (1 << 3 | WIRE_VARINT)
#define SESSION_START 1
#define SUMMARY_VALUE (1 << 3 | WIRE_BYTES)
#define VALUE_TAG (1 << 3 | WIRE_BYTES)
#define VALUE_SIMPLE (2 << 3 | WIRE_4_BYTES)
#define VALUE_TENSOR (8 << 3 | WIRE_BYTES)
#define VALUE_METADATA (9 << 3 | WIRE_BYTES)
#define METADATA_PLUGIN (1 << 3 | WIRE_BYTES)
#define METADATA_CLASS (4 << 3 | WIRE_VARINT)
#define CLASS_TENSOR 2
#define PLUGIN_NAME (1 << 3 | WIRE_BYTES)
#define PLUGIN_CONTENT (2 << 3 | WIRE_BYTES)
#define TENSOR_DTYPE (1 << 3 | WIRE_VARINT)
#define TENSOR_SHAPE (2 << 3 | WIRE_BYTES)
#define TENSOR_RAW (4 << 3 | WIRE_BYTES)
#define TENSOR_STRING (8 << 3 | WIRE_BYTES)
#define DTYPE_FLOAT 1
#define DTYPE_DOUBLE 2
#define DTYPE_STRING 7
#define SHAPE_DIM (2 << 3 | WIRE_BYTES)
#define DIM_SIZE (1 << 3 | WIRE_VARINT)
#define HPARAMS_START (3 << 3 | WIRE_BYTES)
#define HPARAMS_END (4 << 3 | WIRE_BYTES)
#define START_HPARAM (1 << 3 | WIRE_BYTES)
#define START_TIME (5 << 3 | WIRE_8_BYTES)
#define HPARAM_KEY (1 << 3 | WIRE_BYTES)
#define HPARAM_VALUE (2 << 3 | WIRE_BYTES)
#define NUMBER_VALUE (2 << 3 | WIRE_8_BYTES)
#define STRING_VALUE (3 << 3 | WIRE_BYTES)
#define BOOL_VALUE (4 << 3 | WIRE_VARINT)
#define END_STATUS (1 << 3 | WIRE_VARINT)
#define END_TIME (2 << 3 | WIRE_8_BYTES)

/* -- sums ---------------------------------------------------------------------------- */

static void fill_sums(uint32_t sums[256])
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c >> 1 ^ (c & 1 ? 0x82F63B78U : 0);
        sums[i] = c;
    }
}

uint32_t event_sum(const struct event_record *e, const void *bytes, size_t n)
{
    const uint8_t *b = bytes;
    uint32_t c = 0xFFFFFFFFU;
    for (size_t i = 0; i < n; i++)
        c = c >> 8 ^ e->sums[(c ^ b[i]) & 0xFF];
    c = ~c;
    return (c >> 15 | c << 17) + 0xA282EAD8U;
}

/* -- fields -------------------------------------------------------------------------- */

static void put_bytes(struct event_record *e, const void *bytes, size_t n)
{
    e->is_full = e->is_full || n > EVENT_BYTES_MOST - EVENT_TAIL_BYTES - e->n;
    if (e->is_full)
        return;
    memcpy(e->bytes + e->n, bytes, n);
    e->n += n;
}

static void put_little_endian(struct event_record *e, uint64_t value, size_t n)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
    put_bytes(e, bytes, n);
}

static size_t varint(uint8_t bytes[10], uint64_t value)
{
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[n++] = (uint8_t)(value | 0x80);
    bytes[n++] = (uint8_t)value;
    return n;
}

static void put_varint(struct event_record *e, uint64_t value)
{
    uint8_t bytes[10];
    put_bytes(e, bytes, varint(bytes, value));
}

static void put_number(struct event_record *e, int key, uint64_t value)
{
    put_varint(e, (uint64_t)key);
    put_varint(e, value);
}

static void put_double(struct event_record *e, int key, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_varint(e, (uint64_t)key);
    put_little_endian(e, bits, sizeof bits);
}

static void put_string(struct event_record *e, int key, const char *text, size_t n)
{
    put_varint(e, (uint64_t)key);
    put_varint(e, n);
    put_bytes(e, text, n);
}

/* An inner message: where it begins. */
static size_t begin(struct event_record *e, int key)
{
    put_varint(e, (uint64_t)key);
    return e->n;
}

static void end(struct event_record *e, size_t start)
{
    uint8_t length[10];
    if (e->is_full)
        return;
    size_t n = varint(length, e->n - start), n_inner = e->n - start;
    put_bytes(e, length, n); // to see whether they fit
    if (e->is_full)
        return;
    memmove(e->bytes + start + n, e->bytes + start, n_inner);
    memcpy(e->bytes + start, length, n);
}

/* -- records ------------------------------------------------------------------------- */

int event_open(struct event_record *e, struct error *err)
{
    *e = (struct event_record){.bytes = malloc(EVENT_BYTES_MOST)};
    if (!e->bytes)
        return error_set(err, ERROR_RUNTIME, "out of memory for TensorBoard's records");
    fill_sums(e->sums);
    return 0;
}

void event_close(struct event_record *e)
{
    free(e->bytes);
    e->bytes = NULL;
}

void event_begin(struct event_record *e, double wall, int64_t step)
{
    e->n = EVENT_HEAD_BYTES;
    e->is_full = false;
    e->summary = 0;
    put_double(e, EVENT_WALL_TIME, wall);
    if (step > 0)
        put_number(e, EVENT_STEP, (uint64_t)step);
}

bool event_end(struct event_record *e)
{
    if (e->summary)
        end(e, e->summary);
    if (e->is_full)
        return false;
    size_t n = e->n - EVENT_HEAD_BYTES, all = e->n;
    uint32_t sum = event_sum(e, e->bytes + EVENT_HEAD_BYTES, n);
    e->n = 0;
    put_little_endian(e, n, 8);
    put_little_endian(e, event_sum(e, e->bytes, 8), 4);
    e->n = all;
    for (size_t i = 0; i < EVENT_TAIL_BYTES; i++) // there is always room for it
        e->bytes[e->n++] = (uint8_t)(sum >> 8 * i);
    return true;
}

void event_version(struct event_record *e)
{
    static const char version[] = "brain.Event:2";
    put_string(e, EVENT_VERSION, version, sizeof version - 1);
}

void event_session_start(struct event_record *e)
{
    size_t log = begin(e, EVENT_SESSION_LOG);
    put_number(e, SESSION_STATUS, SESSION_START);
    end(e, log);
}

/* A value of the summary, which is one message for all of a record: where it begins. */
static size_t begin_value(struct event_record *e, const char *tag)
{
    if (!e->summary)
        e->summary = begin(e, EVENT_SUMMARY);
    size_t value = begin(e, SUMMARY_VALUE);
    put_string(e, VALUE_TAG, tag, strlen(tag));
    return value;
}

static void put_plugin(struct event_record *e, const char *plugin)
{
    size_t metadata = begin(e, VALUE_METADATA), data = begin(e, METADATA_PLUGIN);
    put_string(e, PLUGIN_NAME, plugin, strlen(plugin));
    end(e, data);
    put_number(e, METADATA_CLASS, CLASS_TENSOR);
    end(e, metadata);
}

static void put_dim(struct event_record *e, uint64_t size)
{
    size_t dim = begin(e, SHAPE_DIM);
    put_number(e, DIM_SIZE, size);
    end(e, dim);
}

void event_scalar(struct event_record *e, const char *tag, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    size_t start = begin_value(e, tag);
    put_varint(e, VALUE_SIMPLE);
    put_little_endian(e, bits, sizeof bits);
    end(e, start);
}

void event_text(struct event_record *e, const char *tag, const char *text, size_t n)
{
    size_t value = begin_value(e, tag);
    put_plugin(e, "text");
    size_t tensor = begin(e, VALUE_TENSOR);
    put_number(e, TENSOR_DTYPE, DTYPE_STRING);
    size_t shape = begin(e, TENSOR_SHAPE);
    put_dim(e, 1);
    end(e, shape);
    put_string(e, TENSOR_STRING, text, n);
    end(e, tensor);
    end(e, value);
}

void event_histogram(struct event_record *e, const char *tag,
                     const struct event_bucket *rows, int n_rows)
{
    size_t value = begin_value(e, tag);
    put_plugin(e, "histograms");
    size_t tensor = begin(e, VALUE_TENSOR);
    put_number(e, TENSOR_DTYPE, DTYPE_DOUBLE);
    size_t shape = begin(e, TENSOR_SHAPE);
    put_dim(e, (uint64_t)n_rows);
    put_dim(e, 3);
    end(e, shape);
    size_t raw = begin(e, TENSOR_RAW);
    for (int i = 0; i < n_rows; i++) {
        const double row[] = {rows[i].left, rows[i].right, rows[i].count};
        for (size_t j = 0; j < ARRAY_LEN(row); j++) {
            uint64_t bits;
            memcpy(&bits, &row[j], sizeof bits);
            put_little_endian(e, bits, sizeof bits);
        }
    }
    end(e, raw);
    end(e, tensor);
    end(e, value);
}

/* -- hyper-parameters ---------------------------------------------------------------- */

/* In the metadata, as the content of their plugin, at starts[4]. */
static struct event_hparams begin_hparams(struct event_record *e, const char *tag,
                                          int kind)
{
    struct event_hparams list = {.starts = {[0] = begin_value(e, tag)}};
    list.starts[1] = begin(e, VALUE_METADATA);
    list.starts[2] = begin(e, METADATA_PLUGIN);
    put_string(e, PLUGIN_NAME, "hparams", strlen("hparams"));
    list.starts[3] = begin(e, PLUGIN_CONTENT);
    list.starts[4] = begin(e, kind);
    return list;
}

/* A value without a tensor is not read: it has an empty one. */
static void end_hparams(struct event_record *e, const struct event_hparams *list)
{
    end(e, list->starts[4]);
    end(e, list->starts[3]);
    end(e, list->starts[2]);
    put_number(e, METADATA_CLASS, CLASS_TENSOR);
    end(e, list->starts[1]);
    size_t tensor = begin(e, VALUE_TENSOR);
    put_number(e, TENSOR_DTYPE, DTYPE_FLOAT);
    size_t shape = begin(e, TENSOR_SHAPE);
    size_t dim = begin(e, SHAPE_DIM);
    end(e, dim);
    end(e, shape);
    end(e, tensor);
    end(e, list->starts[0]);
}

struct event_hparams event_hparams_begin(struct event_record *e, double start_time)
{
    struct event_hparams list =
        begin_hparams(e, "_hparams_/session_start_info", HPARAMS_START);
    list.start_time = start_time;
    return list;
}

void event_hparams_end(struct event_record *e, const struct event_hparams *list)
{
    put_double(e, START_TIME, list->start_time);
    end_hparams(e, list);
}

void event_session_end(struct event_record *e, enum event_status status, double end_time)
{
    struct event_hparams list =
        begin_hparams(e, "_hparams_/session_end_info", HPARAMS_END);
    put_number(e, END_STATUS, (uint64_t)status);
    put_double(e, END_TIME, end_time);
    end_hparams(e, &list);
}

static size_t begin_hparam(struct event_record *e, const char *key, size_t *value)
{
    size_t pair = begin(e, START_HPARAM);
    put_string(e, HPARAM_KEY, key, strlen(key));
    *value = begin(e, HPARAM_VALUE);
    return pair;
}

void event_hparam_number(struct event_record *e, const char *key, double value)
{
    size_t inner, pair = begin_hparam(e, key, &inner);
    put_double(e, NUMBER_VALUE, value);
    end(e, inner);
    end(e, pair);
}

void event_hparam_bool(struct event_record *e, const char *key, bool value)
{
    size_t inner, pair = begin_hparam(e, key, &inner);
    put_number(e, BOOL_VALUE, value);
    end(e, inner);
    end(e, pair);
}

void event_hparam_text(struct event_record *e, const char *key, const char *value)
{
    size_t inner, pair = begin_hparam(e, key, &inner);
    put_string(e, STRING_VALUE, value, strlen(value));
    end(e, inner);
    end(e, pair);
}
