#include "device_call.h"

#include "test.h"

#include <stdlib.h>
#include <unistd.h>

#define SLACK_BYTE 0xA5

static struct device *devices[3]; // by type
static enum placement place_of_tensors;

void device_table_add(struct device *dev)
{
    devices[dev->dtype] = dev;
}

void device_table_place(enum placement placement)
{
    place_of_tensors = placement;
}

struct call call_open(const struct stream *s)
{
    struct device *dev = devices[s->dev->dtype];
    assert_non_null(dev);
    return (struct call){
        .s = device_stream(dev, s->name), .k = dev->k, .dtype = dev->dtype};
}

/* -- what it touches ----------------------------------------------------------------- */

static void *pointer_at(const void *pointer)
{
    void *p;
    memcpy(&p, pointer, sizeof p);
    return p;
}

/* Ranges that overlap become one: q, k and v of one buffer, or what is done in place. */
static void add_range(struct call *c, struct call_range r)
{
    for (int i = 0; i < c->n_ranges;) {
        struct call_range *o = &c->ranges[i];
        if (o->host + o->bytes <= r.host || r.host + r.bytes <= o->host) {
            i++;
            continue;
        }
        char *end = r.host + r.bytes, *other_end = o->host + o->bytes;
        r.host = o->host < r.host ? o->host : r.host;
        r.bytes = (size_t)((end > other_end ? end : other_end) - r.host);
        r.is_written = r.is_written || o->is_written;
        *o = c->ranges[--c->n_ranges];
    }
    assert_true(c->n_ranges < CALL_TENSORS_MOST);
    c->ranges[c->n_ranges++] = r;
}

static void touch(struct call *c, void *pointer, int64_t n, enum dtype dtype,
                  bool is_written)
{
    char *host = pointer_at(pointer);
    if (!host)
        return;
    assert_true(n >= 0 && c->n_pointers < CALL_TENSORS_MOST);
    c->pointers[c->n_pointers++] = pointer;
    add_range(c, (struct call_range){.host = host,
                                     .bytes = (size_t)n * dtype_bytes(dtype),
                                     .is_written = is_written});
}

void call_reads(struct call *c, void *pointer, int64_t n, enum dtype dtype)
{
    touch(c, pointer, n, dtype, false);
}

void call_writes(struct call *c, void *pointer, int64_t n, enum dtype dtype)
{
    touch(c, pointer, n, dtype, true);
}

void call_weight(struct call *c, struct weight *w, int64_t rows, int64_t cols,
                 bool is_written)
{
    w->packed = NULL; // the device has made no form of it
    touch(c, &w->data, rows * cols, w->dtype, is_written);
}

void call_array(struct call *c, void *pointer, size_t bytes)
{
    const void *host = pointer_at(pointer);
    if (!host)
        return;
    void *copy = malloc(bytes + 1);
    assert_non_null(copy);
    assert_true(c->n_arrays < CALL_ARRAYS_MOST);
    memcpy(copy, host, bytes);
    memcpy(pointer, &copy, sizeof copy);
    c->arrays[c->n_arrays] = copy;
    c->array_bytes[c->n_arrays++] = bytes;
}

/* -- memory of the device ------------------------------------------------------------ */

static void copy_in(struct call *c, struct call_range *r)
{
    struct device *dev = c->s->dev;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    r->block_bytes = (r->bytes + page) / page * page;
    r->slack = place_of_tensors == PLACED_LAST ? r->block_bytes - r->bytes : 0;
    r->block = dev->ops->alloc(dev, r->block_bytes);
    assert_non_null(r->block);
    device_fill(c->s, r->block, SLACK_BYTE, r->block_bytes);
    if (r->bytes > 0)
        device_copy(c->s, r->block + r->slack, r->host, r->bytes, COPY_TO_DEVICE);
}

static void *device_address(const struct call *c, const char *host)
{
    for (int i = 0; i < c->n_ranges; i++) {
        const struct call_range *r = &c->ranges[i];
        bool is_inside = host >= r->host && host < r->host + r->bytes;
        if (is_inside || (r->bytes == 0 && host == r->host))
            return r->block + r->slack + (host - r->host);
    }
    fail_msg("a pointer leads into no tensor of the call");
    return NULL;
}

void call_begin(struct call *c)
{
    for (int i = 0; i < c->n_ranges; i++)
        copy_in(c, &c->ranges[i]);
    for (int i = 0; i < c->n_pointers; i++) {
        void *there = device_address(c, pointer_at(c->pointers[i]));
        memcpy(c->pointers[i], &there, sizeof there);
    }
    device_synchronize(c->s);
}

static void check_beside(const char *block, const struct call_range *r)
{
    for (size_t i = 0; i < r->block_bytes; i++)
        if ((i < r->slack || i >= r->slack + r->bytes) &&
            (unsigned char)block[i] != SLACK_BYTE)
            fail_msg("a kernel wrote at byte %lld of a tensor of %zu",
                     (long long)i - (long long)r->slack, r->bytes);
}

static void copy_out(struct call *c, const struct call_range *r)
{
    char *block = malloc(r->block_bytes);
    assert_non_null(block);
    device_copy(c->s, block, r->block, r->block_bytes, COPY_TO_HOST);
    device_synchronize(c->s);
    check_beside(block, r);
    if (r->is_written)
        memcpy(r->host, block + r->slack, r->bytes);
    else if (memcmp(r->host, block + r->slack, r->bytes) != 0)
        fail_msg("a kernel wrote into a tensor of %zu bytes that it may only read",
                 r->bytes);
    free(block);
}

void call_end(struct call *c)
{
    struct error err;
    for (int i = 0; i < c->n_arrays; i++)
        memset(c->arrays[i], 0x7E, c->array_bytes[i]);
    device_synchronize(c->s);
    if (device_check(c->s->dev, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < c->n_ranges; i++) {
        copy_out(c, &c->ranges[i]);
        device_free(c->s->dev, c->ranges[i].block, c->ranges[i].block_bytes);
    }
    for (int i = 0; i < c->n_arrays; i++)
        free(c->arrays[i]);
}
