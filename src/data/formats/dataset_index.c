#include "data/formats/dataset_index.h"

#include "base/fs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Documents without a token are counted on top of one for each token. */
#define MOST_EMPTY (1 << 20)

void dataset_index_release(struct dataset_index *idx)
{
    free(idx->document_ends);
    *idx = (struct dataset_index){0};
}

/* -- Megatron ------------------------------------------------------------------------ */

/*
 * The arrays lie unaligned in the file and may be large: they are read through one small
 * buffer. What is allocated (lengths, document ends) is never larger than the file, whose
 * size was compared with the counts in the header first.
 */
static const char magic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
static const char old_magic[8] = {'T', 'N', 'T', 'I', 'D', 'X', 0, 0};

/* 9 and 10 are PaddleNLP's. 6 and 7 are float64 and float32. */
static const struct {
    uint8_t code;
    enum disk_int type;
} codes[] = {
    {1, DISK_U8},  {2, DISK_I8},  {3, DISK_I16}, {4, DISK_I32},
    {5, DISK_I64}, {8, DISK_U16}, {9, DISK_U32}, {10, DISK_U64},
};

struct array_reader { // over the array that starts at `at`
    int fd;
    const char *name;
    uint64_t at;
    size_t used, filled; // bytes of buf
    uint64_t left;       // elements not yet in buf
    enum disk_int type;
    uint8_t buf[65536];
};

static void start_array(struct array_reader *r, uint64_t at, enum disk_int type,
                        uint64_t n)
{
    r->at = at;
    r->type = type;
    r->left = n;
    r->used = r->filled = 0;
}

static int next_integer(struct array_reader *r, int64_t *value, struct error *err)
{
    size_t size = disk_int_bytes(r->type);
    if (r->used == r->filled) {
        uint64_t n = r->left < sizeof r->buf / size ? r->left : sizeof r->buf / size;
        r->filled = (size_t)n * size;
        r->used = 0;
        if (fs_pread_exact(r->fd, r->buf, r->filled, (off_t)r->at))
            return error_set(err, ERROR_INPUT, "cannot read '%s' at byte %llu: %s",
                             r->name, (unsigned long long)r->at, strerror(errno));
        r->at += r->filled;
        r->left -= n;
    }
    *value = disk_int_get(r->type, r->buf + r->used);
    r->used += size;
    return 0;
}

static int find_type(uint8_t code, enum disk_int *type, const char *name,
                     struct error *err)
{
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (codes[i].code == code) {
            *type = codes[i].type;
            return 0;
        }
    return error_set(
        err, ERROR_INPUT,
        "'%s': the token type at byte 17 is %u%s; token ids must be integers", name, code,
        code == 6 || code == 7 ? ", floating point" : "");
}

static int check_magic(const uint8_t *header, size_t n, const char *name,
                       struct error *err)
{
    if (n >= sizeof old_magic && memcmp(header, old_magic, sizeof old_magic) == 0)
        return error_set(err, ERROR_INPUT,
                         "'%s' is an index of the old lazy format (TNTIDX at byte 0); "
                         "convert it to Megatron's MMIDIDX format, or make the dataset "
                         "anew with trefoil prepare",
                         name);
    if (n < MEGATRON_HEADER_BYTES || memcmp(header, magic, sizeof magic) != 0)
        return error_set(err, ERROR_INPUT,
                         "'%s' is not a Megatron index: it does not start with the 34 "
                         "bytes of a header (MMIDIDX at byte 0)",
                         name);
    if (disk_get_u64(header + 9) != 1)
        return error_set(err, ERROR_INPUT,
                         "'%s': version %llu at byte 9; only version 1 is known", name,
                         (unsigned long long)disk_get_u64(header + 9));
    return 0;
}

/* The counts of the header against the size of the file. */
static int check_counts(uint64_t n_seq, uint64_t n_doc, uint64_t file_bytes,
                        const char *name, struct error *err)
{
    uint64_t expected = UINT64_MAX; // when the counts alone are beyond the file's size
    if (n_seq <= file_bytes / 12 && n_doc <= file_bytes / 8)
        expected = MEGATRON_HEADER_BYTES + 12 * n_seq + 8 * n_doc;
    if (n_doc == 0)
        return error_set(err, ERROR_INPUT,
                         "'%s': the document count at byte 26 is 0, but must be at "
                         "least 1 (documents + 1)",
                         name);
    if (expected == file_bytes)
        return 0;
    if (expected < file_bytes && file_bytes - expected == n_seq)
        return error_set(err, ERROR_INPUT,
                         "'%s' is a multimodal index (it has a mode for each sequence "
                         "from byte %llu on); only text datasets can be used",
                         name, (unsigned long long)expected);
    return error_set(
        err, ERROR_INPUT,
        "'%s' is %s: its header declares %llu sequences and %llu documents (bytes 18 "
        "and 26), which do not end at its size of %llu bytes",
        name, expected > file_bytes ? "truncated" : "too long", (unsigned long long)n_seq,
        (unsigned long long)(n_doc - 1), (unsigned long long)file_bytes);
}

static int read_header(struct dataset_index *idx, int fd, const char *name,
                       uint64_t *n_seq, uint64_t *n_doc, struct error *err)
{
    struct stat st;
    uint8_t header[MEGATRON_HEADER_BYTES];
    if (fstat(fd, &st))
        return error_set(err, ERROR_INPUT, "cannot read '%s': %s", name, strerror(errno));
    size_t n = (uint64_t)st.st_size < sizeof header ? (size_t)st.st_size : sizeof header;
    if (fs_pread_exact(fd, header, n, 0))
        return error_set(err, ERROR_INPUT, "cannot read '%s': %s", name, strerror(errno));
    if (check_magic(header, n, name, err) || find_type(header[17], &idx->type, name, err))
        return -1;
    *n_seq = disk_get_u64(header + 18);
    *n_doc = disk_get_u64(header + 26);
    return check_counts(*n_seq, *n_doc, (uint64_t)st.st_size, name, err);
}

/* sequence_ends := running sum of the lengths, which must be what X.bin holds. */
static int read_lengths(struct array_reader *r, int64_t *sequence_ends, uint64_t n_seq,
                        struct error *err)
{
    int64_t length = 0, sum = 0;
    start_array(r, MEGATRON_HEADER_BYTES, DISK_I32, n_seq);
    for (uint64_t i = 0; i < n_seq; i++) {
        if (next_integer(r, &length, err))
            return -1;
        if (length < 0 || __builtin_add_overflow(sum, length, &sum))
            return error_set(err, ERROR_INPUT,
                             "'%s': sequence %llu has %lld tokens (at byte %llu)",
                             r->name, (unsigned long long)i, (long long)length,
                             (unsigned long long)(MEGATRON_HEADER_BYTES + 4 * i));
        sequence_ends[i] = sum;
    }
    return 0;
}

static int check_bin_size(const struct dataset_index *idx, const char *name,
                          uint64_t bin_bytes, const char *bin_name, struct error *err)
{
    uint64_t size = disk_int_bytes(idx->type), needed;
    if (bin_bytes % size != 0)
        return error_set(err, ERROR_INPUT,
                         "'%s' has %llu bytes, which is no whole number of %s tokens: it "
                         "is cut at byte %llu or damaged",
                         bin_name, (unsigned long long)bin_bytes,
                         disk_int_name(idx->type), (unsigned long long)bin_bytes);
    if (__builtin_mul_overflow((uint64_t)idx->n_tokens, size, &needed) ||
        needed != bin_bytes)
        return error_set(
            err, ERROR_INPUT,
            "'%s' and '%s' do not belong together: the index lists %lld %s "
            "tokens, but the data file ends at byte %llu, after %llu tokens; "
            "one of them is truncated or from another dataset",
            bin_name, name, (long long)idx->n_tokens, disk_int_name(idx->type),
            (unsigned long long)bin_bytes, (unsigned long long)(bin_bytes / size));
    return 0;
}

/* Each sequence must start where the one before it ends. */
static int check_pointers(struct array_reader *r, const int64_t *sequence_ends,
                          uint64_t n_seq, enum disk_int type, struct error *err)
{
    int64_t size = (int64_t)disk_int_bytes(type), pointer = 0, expected = 0;
    uint64_t start = MEGATRON_HEADER_BYTES + 4 * n_seq;
    start_array(r, start, DISK_I64, n_seq);
    for (uint64_t i = 0; i < n_seq; i++) {
        if (next_integer(r, &pointer, err))
            return -1;
        if (pointer != expected)
            return error_set(err, ERROR_INPUT,
                             "'%s': the offset of sequence %llu (at byte %llu) is %lld, "
                             "but the lengths before it add up to %lld",
                             r->name, (unsigned long long)i,
                             (unsigned long long)(start + 8 * i), (long long)pointer,
                             (long long)expected);
        expected = sequence_ends[i] * size;
    }
    return 0;
}

static int read_documents(struct array_reader *r, const int64_t *sequence_ends,
                          uint64_t n_seq, uint64_t n_doc, struct dataset_index *idx,
                          struct error *err)
{
    int64_t bound = 0, previous = 0;
    uint64_t start = MEGATRON_HEADER_BYTES + 12 * n_seq;
    start_array(r, start, DISK_I64, n_doc);
    for (uint64_t i = 0; i < n_doc; i++) {
        if (next_integer(r, &bound, err))
            return -1;
        bool is_right = i == 0 ? bound == 0 : bound >= previous;
        if (!is_right || bound > (int64_t)n_seq ||
            (i == n_doc - 1 && bound != (int64_t)n_seq))
            return error_set(err, ERROR_INPUT,
                             "'%s': document boundary %llu (at byte %llu) is %lld, but "
                             "boundaries go from 0 up to the sequence count, %llu",
                             r->name, (unsigned long long)i,
                             (unsigned long long)(start + 8 * i), (long long)bound,
                             (unsigned long long)n_seq);
        if (i > 0)
            idx->document_ends[i - 1] = bound == 0 ? 0 : sequence_ends[bound - 1];
        previous = bound;
    }
    return 0;
}

int megatron_index_read(struct dataset_index *idx, int fd, const char *name,
                        uint64_t bin_bytes, const char *bin_name, struct error *err)
{
    uint64_t n_seq = 0, n_doc = 0;
    int64_t *sequence_ends = NULL;
    struct array_reader *r = NULL;
    int rc = -1;
    *idx = (struct dataset_index){0};
    if (read_header(idx, fd, name, &n_seq, &n_doc, err))
        return -1;
    r = malloc(sizeof *r);
    sequence_ends = calloc((size_t)n_seq + 1, 8);
    idx->n_documents = (int64_t)n_doc - 1;
    idx->document_ends = malloc(((size_t)n_doc + 1) * 8);
    if (!r || !sequence_ends || !idx->document_ends) {
        error_set(err, ERROR_RUNTIME, "no memory for the index '%s'", name);
        goto done;
    }
    r->fd = fd;
    r->name = name;
    if (read_lengths(r, sequence_ends, n_seq, err))
        goto done;
    idx->n_tokens = n_seq == 0 ? 0 : sequence_ends[n_seq - 1];
    if (check_bin_size(idx, name, bin_bytes, bin_name, err) ||
        check_pointers(r, sequence_ends, n_seq, idx->type, err) ||
        read_documents(r, sequence_ends, n_seq, n_doc, idx, err))
        goto done;
    rc = 0;
done:
    free(r);
    free(sequence_ends);
    if (rc)
        dataset_index_release(idx);
    return rc;
}

void megatron_index_header(uint8_t header[MEGATRON_HEADER_BYTES], enum disk_int type,
                           int64_t n_sequences, int64_t n_documents)
{
    memcpy(header, magic, sizeof magic);
    disk_put_u64(header + 9, 1);
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (codes[i].type == type)
            header[17] = codes[i].code;
    disk_put_u64(header + 18, (uint64_t)n_sequences);
    disk_put_u64(header + 26, (uint64_t)n_documents + 1);
}

/* -- FleetX -------------------------------------------------------------------------- */

/* *values := the integers of a one-dimensional array (malloc'ed); *n is -1, and *values
 * NULL, when the archive does not have it. */
static int read_archived(const struct npz *z, const char *array, int64_t most,
                         int64_t **values, int64_t *n, struct error *err)
{
    struct npz_member m;
    bool is_there;
    *values = NULL;
    *n = -1;
    if (npz_find(z, array, &m, &is_there, err))
        return -1;
    return is_there ? npz_read_numbers(z, &m, most, values, n, err) : 0;
}

/* Lengths -> running sum, in place. */
static int sum_lengths(int64_t *lens, int64_t n, const char *name, struct error *err)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        if (lens[i] < 0 || __builtin_add_overflow(sum, lens[i], &sum))
            return error_set(err, ERROR_INPUT,
                             "'%s[lens]': element %lld is %lld, which is no length", name,
                             (long long)i, (long long)lens[i]);
        lens[i] = sum;
    }
    return 0;
}

/* Sentence boundaries -> running sum of tokens, in place: docs[i] becomes the end of
 * document i, for one element less. */
static int sum_documents(int64_t *docs, int64_t n_docs, const int64_t *sentence_ends,
                         int64_t n_sentences, const char *name, struct error *err)
{
    for (int64_t i = 0; i < n_docs; i++)
        if ((i == 0 && docs[0] != 0) || (i > 0 && docs[i] < docs[i - 1]) ||
            docs[i] > n_sentences || (i == n_docs - 1 && docs[i] != n_sentences))
            return error_set(err, ERROR_INPUT,
                             "'%s[docs]': element %lld is %lld, but boundaries go from 0 "
                             "up to the number of lens, %lld",
                             name, (long long)i, (long long)docs[i],
                             (long long)n_sentences);
    for (int64_t i = 0; i + 1 < n_docs; i++)
        docs[i] = docs[i + 1] == 0 ? 0 : sentence_ends[docs[i + 1] - 1];
    return 0;
}

int fleetx_index_read(struct dataset_index *idx, const struct npz *z, int64_t n_tokens,
                      struct error *err)
{
    int64_t *lens = NULL, *docs = NULL, n_lens, n_docs;
    int rc = -1;
    *idx = (struct dataset_index){0};
    if (read_archived(z, "lens", n_tokens + MOST_EMPTY, &lens, &n_lens, err) ||
        read_archived(z, "docs", n_lens + MOST_EMPTY, &docs, &n_docs, err))
        goto done;
    if (!lens || n_docs == 0) {
        error_set(err, ERROR_INPUT, "'%s' has no %s in it", z->name,
                  lens ? "boundaries in the array docs" : "array lens");
        goto done;
    }
    if (sum_lengths(lens, n_lens, z->name, err) ||
        (docs && sum_documents(docs, n_docs, lens, n_lens, z->name, err)))
        goto done;
    idx->n_tokens = n_lens == 0 ? 0 : lens[n_lens - 1];
    idx->n_documents = docs ? n_docs - 1 : n_lens;
    idx->document_ends = docs ? docs : lens;
    rc = 0;
done:
    if (rc || docs)
        free(lens);
    if (rc)
        free(docs);
    return rc;
}
