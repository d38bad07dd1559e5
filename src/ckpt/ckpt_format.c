#include "ckpt/ckpt_format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- parts --------------------------------------------------------------------------- */

/* Runs that follow each other without a gap (all columns of a matrix that mp could cut)
 * are one: a call to the kernel and a copy for each row would cost more than the data. */
static struct param_runs joined_runs(const struct param *row)
{
    struct param_runs runs = param_runs(row);
    if (runs.n_runs > 1 && runs.run_stride == runs.run_length) {
        runs.run_length *= runs.n_runs;
        runs.n_runs = 1;
    }
    return runs;
}

int ckpt_part_init(struct ckpt_part *part, const struct shard_map *map, bool only_counted,
                   struct error *err)
{
    *part = (struct ckpt_part){0};
    part->pieces = calloc((size_t)map->n_pieces + 1, sizeof *part->pieces);
    if (!part->pieces)
        return error_set(err, ERROR_RUNTIME,
                         "out of memory for the pieces of %lld parameters",
                         (long long)map->n_pieces);
    for (int64_t i = 0; i < map->n_pieces; i++) {
        const struct shard_piece *piece = &map->pieces[i];
        const struct param *row = &map->table->params[piece->row];
        if (only_counted && !row->is_counted)
            continue;
        part->pieces[part->n_pieces++] = (struct ckpt_piece){.row = row,
                                                             .id = i,
                                                             .runs = joined_runs(row),
                                                             .first = piece->first,
                                                             .n = piece->n};
        part->n_elements += piece->n;
    }
    return 0;
}

void ckpt_part_release(struct ckpt_part *part)
{
    free(part->pieces);
    *part = (struct ckpt_part){0};
}

int64_t ckpt_piece_run(const struct ckpt_piece *piece, int64_t i, int64_t n,
                       int64_t *whole)
{
    const struct param_runs *runs = &piece->runs;
    int64_t at = piece->first + i;
    int64_t run = at / runs->run_length, inside = at % runs->run_length;
    *whole = runs->first + run * runs->run_stride + inside;
    return i64_min(n, runs->run_length - inside);
}

/* -- layout -------------------------------------------------------------------------- */

/* Tensors are dealt to files first; their places follow when the headers are known. */

const char *const ckpt_set_names[N_CKPT_SETS] = {
    [CKPT_MODEL] = "model", [CKPT_OPTIMIZER] = "optimizer"};

struct ckpt_kinds ckpt_set_kinds(enum ckpt_set set, const struct update_rule *rule)
{
    if (set == CKPT_MODEL)
        return (struct ckpt_kinds){OPTIMIZER_WEIGHTS, OPTIMIZER_WEIGHTS + 1};
    return (struct ckpt_kinds){OPTIMIZER_WEIGHTS + 1, update_rule_n_tensors(rule)};
}

void ckpt_tensor_name(const struct param *param, int kind, const struct update_rule *rule,
                      char name[CKPT_TENSOR_NAME_BYTES])
{
    bool is_state = kind != OPTIMIZER_WEIGHTS;
    int n = snprintf(name, CKPT_TENSOR_NAME_BYTES, "%s%s%s", param->name,
                     is_state ? "." : "", is_state ? rule->states[kind - 1].name : "");
    CHECK(n < CKPT_TENSOR_NAME_BYTES, "tensor name '%s' is cut", name);
}

static struct ckpt_tensor *tensor_at(const struct ckpt_layout *layout, int64_t number,
                                     int kind)
{
    CHECK(number >= 0 && number < layout->n_rows, "parameter %lld of %lld",
          (long long)number, (long long)layout->n_rows);
    return &layout->tensors[number * layout->n_kinds + kind];
}

const struct ckpt_tensor *ckpt_layout_tensor(const struct ckpt_layout *layout,
                                             int64_t number, int kind)
{
    return tensor_at(layout, number, kind);
}

/* -- dealing tensors to files -------------------------------------------------------- */

static int out_of_memory(struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "out of memory for the files of a checkpoint");
}

static int add_file(struct ckpt_layout *layout, struct error *err)
{
    size_t n = (size_t)layout->n_files + 1;
    struct ckpt_layout_file *files = realloc(layout->files, n * sizeof *files);
    if (!files)
        return out_of_memory(err);
    layout->files = files;
    files[layout->n_files++] = (struct ckpt_layout_file){.first_block = layout->n_blocks};
    return 0;
}

/* The last file has tensors, and one more of n_bytes would make it too large. */
static bool is_full(const struct ckpt_layout *layout, int64_t n_bytes,
                    int64_t max_file_bytes)
{
    const struct safetensors *st = &layout->files[layout->n_files - 1].st;
    return st->n_tensors > 0 && n_bytes > max_file_bytes - st->data_bytes;
}

static int add_tensor(struct ckpt_layout *layout, enum ckpt_set set,
                      const struct param *row, int kind, int64_t max_file_bytes,
                      struct error *err)
{
    char name[CKPT_TENSOR_NAME_BYTES];
    int64_t n_bytes = row->n_elements * (int64_t)sizeof(float);
    bool is_first = layout->n_files == layout->set_files[set];
    if ((is_first || is_full(layout, n_bytes, max_file_bytes)) && add_file(layout, err))
        return -1;
    struct ckpt_layout_file *last = &layout->files[layout->n_files - 1];
    ckpt_tensor_name(row, kind, layout->rule, name);
    *tensor_at(layout, row->number, kind) =
        (struct ckpt_tensor){.file = layout->n_files - 1,
                             .at = last->st.data_bytes, // the header's size comes later
                             .n_elements = row->n_elements,
                             .first_block = layout->n_blocks};
    layout->n_blocks += ckpt_n_blocks(row->n_elements);
    return safetensors_append(&last->st, name, SAFETENSORS_F32, row->n_dims, row->shape,
                              err);
}

static int add_set(struct ckpt_layout *layout, enum ckpt_set set,
                   const struct param_table *whole, int64_t max_file_bytes,
                   struct error *err)
{
    struct ckpt_kinds kinds = ckpt_set_kinds(set, layout->rule);
    layout->set_files[set] = layout->n_files;
    for (int64_t i = 0; i < whole->n_params; i++)
        for (int kind = kinds.first; kind < kinds.end; kind++)
            if (add_tensor(layout, set, &whole->params[i], kind, max_file_bytes, err))
                return -1;
    layout->set_files[set + 1] = layout->n_files;
    return 0;
}

/* -- names and headers --------------------------------------------------------------- */

static void name_files(struct ckpt_layout *layout, enum ckpt_set set)
{
    int first = layout->set_files[set], n = layout->set_files[set + 1] - first;
    for (int i = 0; i < n; i++)
        safetensors_file_name(ckpt_set_names[set], i, n, layout->files[first + i].name);
}

static int encode_headers(struct ckpt_layout *layout, struct error *err)
{
    for (int i = 0; i < layout->n_files; i++) {
        struct ckpt_layout_file *file = &layout->files[i];
        if (safetensors_encode_header(&file->st, &file->header, err))
            return -1;
        layout->n_bytes += file->st.header_bytes + file->st.data_bytes;
    }
    for (int64_t i = 0; i < layout->n_rows * layout->n_kinds; i++) {
        struct ckpt_tensor *tensor = &layout->tensors[i];
        tensor->at += layout->files[tensor->file].st.header_bytes;
    }
    return 0;
}

int ckpt_layout_init(struct ckpt_layout *layout, const struct param_table *whole,
                     const struct update_rule *rule, int64_t max_file_bytes,
                     struct error *err)
{
    int rc = -1;
    CHECK(whole->n_params == whole->n_params_whole, "a part of %lld of %lld parameters",
          (long long)whole->n_params, (long long)whole->n_params_whole);
    *layout = (struct ckpt_layout){.rule = rule,
                                   .n_kinds = update_rule_n_tensors(rule),
                                   .n_rows = whole->n_params,
                                   .n_parameters = whole->n_elements};
    layout->tensors =
        calloc((size_t)(whole->n_params * layout->n_kinds) + 1, sizeof *layout->tensors);
    if (!layout->tensors) {
        out_of_memory(err);
        goto done;
    }
    for (int set = 0; set < N_CKPT_SETS; set++) {
        if (add_set(layout, (enum ckpt_set)set, whole, max_file_bytes, err))
            goto done;
        name_files(layout, (enum ckpt_set)set);
    }
    rc = encode_headers(layout, err);
done:
    if (rc)
        ckpt_layout_release(layout);
    return rc;
}

void ckpt_layout_release(struct ckpt_layout *layout)
{
    for (int i = 0; i < layout->n_files; i++) {
        safetensors_release(&layout->files[i].st);
        free(layout->files[i].header);
    }
    free(layout->files);
    free(layout->tensors);
    *layout = (struct ckpt_layout){0};
}

/* -- the index ----------------------------------------------------------------------- */

int ckpt_layout_index(const struct ckpt_layout *layout, enum ckpt_set set,
                      char name[CKPT_FILE_NAME_BYTES], char **text, struct error *err)
{
    int first = layout->set_files[set], n = layout->set_files[set + 1] - first;
    *text = NULL;
    snprintf(name, CKPT_FILE_NAME_BYTES, "%s.safetensors.index.json",
             ckpt_set_names[set]);
    if (n <= 1)
        return 0;
    const struct safetensors **files = calloc((size_t)n, sizeof(void *));
    for (int i = 0; i < n && files; i++)
        files[i] = &layout->files[first + i].st;
    if (files)
        *text = safetensors_index_text(ckpt_set_names[set], files, n);
    free((void *)files);
    return *text ? 0 : out_of_memory(err);
}

/* -- hashes -------------------------------------------------------------------------- */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensor data is written to files as it lies in memory");

#define BLOCK_WORDS (CKPT_BLOCK_BYTES / (int64_t)sizeof(float))

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    return x ^ x >> 16;
}

static uint64_t run_multiplier(int64_t c)
{
    uint32_t i = 2 * (uint32_t)c;
    return ((uint64_t)mix(i + 1) << 32) + 2 * (uint64_t)mix(i + 2) + 1;
}

void ckpt_sum_keys_init(struct ckpt_sum_keys *keys)
{
    for (uint32_t j = 0; j < CKPT_SUM_KEYS; j++)
        keys->k[j] = 2 * mix(j + 1) + 1;
}

/* A 32 x 32 -> 64 bit product and a sum per word, which compilers turn into vectors of any
 * width: it runs at the speed of memory. Integer sums may be taken in any order. */
static uint64_t sum_run(const uint32_t *k, const float *words, int64_t n)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, words + i, sizeof word);
        sum += (uint64_t)k[i] * word;
    }
    return sum;
}

uint64_t ckpt_sum(const struct ckpt_sum_keys *keys, int64_t first, const float *words,
                  int64_t n)
{
    uint64_t sum = 0;
    for (int64_t done = 0; done < n;) {
        int64_t c = (first + done) / CKPT_SUM_KEYS, j = (first + done) % CKPT_SUM_KEYS;
        int64_t part = i64_min(n - done, CKPT_SUM_KEYS - j);
        sum += run_multiplier(c) * sum_run(keys->k + j, words + done, part);
        done += part;
    }
    return sum;
}

/* -- blocks -------------------------------------------------------------------------- */

int ckpt_sums_init(struct ckpt_sums *sums, int64_t n_blocks, struct error *err)
{
    *sums = (struct ckpt_sums){.n_blocks = n_blocks};
    ckpt_sum_keys_init(&sums->keys);
    sums->hashes = calloc((size_t)n_blocks + 1, sizeof *sums->hashes);
    sums->counts = calloc((size_t)n_blocks + 1, sizeof *sums->counts);
    if (sums->hashes && sums->counts)
        return 0;
    ckpt_sums_release(sums);
    return error_set(err, ERROR_RUNTIME, "out of memory for the hashes of %lld blocks",
                     (long long)n_blocks);
}

void ckpt_sums_release(struct ckpt_sums *sums)
{
    free(sums->hashes);
    free(sums->counts);
    sums->hashes = NULL;
    sums->counts = NULL;
    sums->n_blocks = 0;
}

void ckpt_sums_reset(struct ckpt_sums *sums)
{
    memset(sums->hashes, 0, (size_t)sums->n_blocks * sizeof *sums->hashes);
    memset(sums->counts, 0, (size_t)sums->n_blocks * sizeof *sums->counts);
}

void ckpt_sums_add(struct ckpt_sums *sums, int64_t first_block, int64_t first,
                   const float *words, int64_t n)
{
    for (int64_t done = 0; done < n;) {
        int64_t block = first_block + (first + done) / BLOCK_WORDS;
        int64_t inside = (first + done) % BLOCK_WORDS;
        int64_t part = i64_min(n - done, BLOCK_WORDS - inside);
        CHECK(block < sums->n_blocks, "block %lld of %lld", (long long)block,
              (long long)sums->n_blocks);
        sums->hashes[block] += ckpt_sum(&sums->keys, inside, words + done, part);
        sums->counts[block] += part;
        done += part;
    }
}

int64_t ckpt_n_blocks(int64_t n_words)
{
    return n_words / BLOCK_WORDS + (n_words % BLOCK_WORDS > 0);
}

int64_t ckpt_block_words(int64_t n_words, int64_t i)
{
    return i64_min(BLOCK_WORDS, n_words - i * BLOCK_WORDS);
}

int64_t ckpt_sums_records(const struct ckpt_sums *sums, struct ckpt_sum_record *records)
{
    int64_t n = 0;
    for (int64_t i = 0; i < sums->n_blocks; i++)
        if (sums->counts[i] > 0)
            records[n++] = (struct ckpt_sum_record){i, sums->counts[i], sums->hashes[i]};
    return n;
}

void ckpt_sums_add_record(struct ckpt_sums *sums, const struct ckpt_sum_record *record)
{
    CHECK(record->block >= 0 && record->block < sums->n_blocks, "block %lld of %lld",
          (long long)record->block, (long long)sums->n_blocks);
    sums->hashes[record->block] += record->hash;
    sums->counts[record->block] += record->count;
}
