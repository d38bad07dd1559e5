/* One call of a kernel: its operands as addresses of the device, where the same bytes lie
 * while it runs; then what was written, copied back. */
#include "device_table.h"

#include "device/operands.h"
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

#define CALL_TENSORS_MAX 72
#define CALL_ARRAYS_MAX 4
#define SLACK_BYTE 0xA5

struct call_range { // of the host's memory, with its twin
    char *host;
    size_t bytes;
    bool is_written;
    char *block; // the device's allocation
    size_t block_bytes, slack;
};

struct call {
    struct stream *s; // of the device itself
    struct call_range ranges[CALL_TENSORS_MAX];
    int n_ranges;
    void *pointers[CALL_TENSORS_MAX]; // where those lie that call_begin() turns
    int n_pointers;
    void *arrays[CALL_ARRAYS_MAX]; // copies, good until the call returns
    size_t array_bytes[CALL_ARRAYS_MAX];
    int n_arrays;
};

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
    assert_true(c->n_ranges < CALL_TENSORS_MAX);
    c->ranges[c->n_ranges++] = r;
}

/* Elements from the first to the last, gaps included. */
static int64_t operand_span(const struct operand *o)
{
    if (o->rows == 0 || o->cols == 0)
        return 0;
    return (o->rows - 1) * o->row + (o->cols - 1) * o->col + 1;
}

/* Pass a copy of an array of the host. */
static void add_array(struct call *c, const struct operand *o)
{
    size_t bytes = (size_t)operand_span(o) * o->element;
    void *copy = malloc(bytes + 1);
    assert_non_null(copy);
    assert_true(c->n_arrays < CALL_ARRAYS_MAX);
    memcpy(copy, operand_address(o), bytes);
    memcpy(o->pointer, &copy, sizeof copy);
    c->arrays[c->n_arrays] = copy;
    c->array_bytes[c->n_arrays++] = bytes;
}

static void add_operand(void *context, const struct operand *o)
{
    struct call *c = context;
    int64_t n = operand_span(o);
    assert_true(n >= 0 && c->n_pointers < CALL_TENSORS_MAX);
    if (o->access == OPERAND_HOST)
        add_array(c, o);
    else if (o->access == OPERAND_SCRATCH && n == 0)
        memset(o->pointer, 0, sizeof(void *)); // a use of it is a fault
    else if (o->access != OPERAND_RESULT) {
        c->pointers[c->n_pointers++] = o->pointer;
        add_range(c, (struct call_range){.host = operand_address(o),
                                         .bytes = (size_t)n * o->element,
                                         .is_written = o->access != OPERAND_READ});
    }
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

static void call_begin(struct call *c)
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

static void call_end(struct call *c)
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

/* -- the table ----------------------------------------------------------------------- */

#define ARGS_BYTES(name, args) sizeof(struct args),
static void hosted(struct stream *s, enum operation op, const void *args)
{
    struct device *dev = devices[s->dev->dtype];
    union operation_args copy;
    static const size_t sizes[] = {OPERATIONS(ARGS_BYTES)};
    assert_non_null(dev);
    struct call c = {.s = device_stream(dev, s->name)};
    struct operands operands = {.visit = add_operand, .context = &c, .dev = dev};
    memcpy(&copy, args, sizes[op]);
    operands_of(op, &copy, &operands);
    call_begin(&c);
    operation_run(dev->k, op, c.s, &copy);
    call_end(&c);
}

#define HOSTED(name, args)                                                               \
    static void hosted_##name(struct stream *s, const struct args *a)                    \
    {                                                                                    \
        hosted(s, OP_##name, a);                                                         \
    }
OPERATIONS(HOSTED)

#define ENTRY(name, args) .name = hosted_##name,
const struct kernels *device_table(void)
{
    static const struct kernels table = {.name = "of the device", OPERATIONS(ENTRY)};
    return &table;
}
