/*
 * Checkpoints of many processes, played by one: the parts of every process of a layout
 * are written in turn, and read in turn by those of another.
 */
#include "ckpt_fixture.h"

#include "ckpt/ckpt_read.h"
#include "ckpt/ckpt_write.h"
#include "model/gpt_params.h"

#define MAX_PROCESSES 24
#define N_LAYERS 4

struct shape {
    int mp, pp, chunks, sharding;
};

static const struct shape shapes[] = {
    {1, 1, 1, 1}, {2, 1, 1, 1}, {3, 1, 1, 1}, {1, 2, 1, 1}, {1, 2, 2, 1}, {1, 4, 1, 1},
    {1, 1, 1, 2}, {1, 1, 1, 3}, {2, 2, 1, 1}, {2, 2, 2, 2}, {3, 2, 1, 4},
};

struct process {
    struct param_table table;
    struct shard_map map;
    float *values[N_KINDS]; // (map.n_local)
};

struct job {
    struct process processes[MAX_PROCESSES];
    int n_processes;
    struct param_table whole;
    bool is_past_cache; // it reads
};

static const struct config_model model = {.vocab_size = 101,
                                          .norm_epsilon = 1e-5,
                                          .max_position_embeddings = 33,
                                          .hidden_size = 48,
                                          .num_layers = N_LAYERS,
                                          .num_attention_heads = 6,
                                          .ffn_hidden_size = 144};

/* Blocks of stage `pp`: chunks of equal length, dealt out in turn. */
static struct param_part part_of(const struct shape *s, int pp, int mp)
{
    int n = s->pp * s->chunks, each = N_LAYERS / n;
    struct param_part part = {.mp = s->mp,
                              .mp_rank = mp,
                              .has_embedding = pp == 0,
                              .has_head = pp == s->pp - 1,
                              .n_chunks = s->chunks};
    for (int c = 0; c < s->chunks; c++) {
        part.chunks[c].first = (c * s->pp + pp) * each;
        part.chunks[c].end = part.chunks[c].first + each;
    }
    return part;
}

static void job_open(struct job *job, const struct shape *s)
{
    struct error err;
    memset(job, 0, sizeof *job);
    assert_ok(gpt_param_table(&job->whole, &model, NULL, &err), err);
    for (int pp = 0; pp < s->pp; pp++)
        for (int sh = 0; sh < s->sharding; sh++)
            for (int mp = 0; mp < s->mp; mp++) {
                struct process *p = &job->processes[job->n_processes++];
                struct param_part part = part_of(s, pp, mp);
                assert_ok(gpt_param_table(&p->table, &model, &part, &err), err);
                assert_ok(shard_map_init(&p->map, &p->table, s->sharding, sh, &err), err);
                for (int k = 0; k < N_KINDS; k++)
                    p->values[k] = calloc((size_t)p->map.n_local + 1, sizeof(float));
            }
}

static void job_close(struct job *job)
{
    for (int i = 0; i < job->n_processes; i++) {
        struct process *p = &job->processes[i];
        for (int k = 0; k < N_KINDS; k++)
            free(p->values[k]);
        shard_map_release(&p->map);
        param_table_release(&p->table);
    }
    param_table_release(&job->whole);
}

/* What element `whole` of a tensor is in the state number `salt`. */
static float value_of(const struct param *row, int kind, int64_t whole, int64_t salt)
{
    uint32_t key[2] = {(uint32_t)row->number, (uint32_t)kind}, bits[4];
    uint32_t counter[4] = {(uint32_t)whole, (uint32_t)salt, 0, 0};
    float value;
    philox_4x32(key, counter, bits);
    memcpy(&value, bits, sizeof value);
    return value;
}

/* Visit every element that the process owns: fill it, or compare it bit by bit. */
static void each_value(struct process *p, int64_t salt, bool is_filling)
{
    struct ckpt_part part;
    struct error err;
    assert_ok(ckpt_part_init(&part, &p->map, false, &err), err);
    for (int kind = 0; kind < N_KINDS; kind++)
        for (int64_t i = 0; i < part.n_pieces; i++) {
            const struct ckpt_piece *piece = &part.pieces[i];
            float *at = p->values[kind] + p->map.pieces[piece->id].local;
            for (int64_t j = 0; j < piece->n; j++) {
                int64_t whole;
                ckpt_piece_run(piece, j, 1, &whole);
                float value = value_of(piece->row, kind, whole, salt);
                if (is_filling)
                    at[j] = value;
                else if (memcmp(&at[j], &value, sizeof value) != 0)
                    fail_msg("'%s', kind %d, element %lld differs", piece->row->name,
                             kind, (long long)whole);
            }
        }
    ckpt_part_release(&part);
}

static const float *view(void *context, int kind, const struct ckpt_piece *piece,
                         int64_t first, int64_t n, float *room, struct error *err)
{
    const struct process *p = context;
    const float *at = p->values[kind] + p->map.pieces[piece->id].local + first;
    (void)err;
    if (piece->id % 2) // the two ways a source may answer
        return at;
    memcpy(room, at, (size_t)n * sizeof *room);
    return room;
}

static int take(void *context, int kind, const struct ckpt_piece *piece, int64_t first,
                int64_t n, const float *x, struct error *err)
{
    const struct process *p = context;
    (void)err;
    memcpy(p->values[kind] + p->map.pieces[piece->id].local + first, x,
           (size_t)n * sizeof *x);
    return 0;
}

/* All processes in turn, each with sums of its own that are then brought together. */
static void save_parts(struct job *job, const char *dir, int64_t salt,
                       int64_t max_file_bytes)
{
    struct ckpt_lock lock;
    struct ckpt_layout layout;
    struct ckpt_commit commit;
    struct ckpt_sums total;
    struct ckpt_progress progress = {
        .step = 1, .consumed_samples = 8, .config_json = "{}"};
    struct error err;
    assert_ok(ckpt_lock_open(&lock, dir, CKPT_LOCK_BEAT_SECONDS, &err), err);
    assert_ok(ckpt_layout_init(&layout, &job->whole, test_rule(), max_file_bytes, &err),
              err);
    assert_ok(ckpt_sums_init(&total, layout.n_blocks, &err), err);
    assert_ok(ckpt_commit_begin(&commit, dir, &lock, &layout, &progress, &err), err);
    for (int i = job->n_processes - 1; i >= 0; i--) {
        struct process *p = &job->processes[i];
        struct ckpt_source source = {view, p};
        struct ckpt_part part;
        struct ckpt_sums sums;
        struct ckpt_sum_record *records =
            calloc((size_t)layout.n_blocks, sizeof *records);
        each_value(p, salt, true);
        assert_ok(ckpt_sums_init(&sums, layout.n_blocks, &err), err);
        assert_ok(ckpt_part_init(&part, &p->map, true, &err), err);
        assert_ok(
            ckpt_write_part(commit.temp, &layout, &part, &source, i == 0, &sums, &err),
            err);
        int64_t n = ckpt_sums_records(&sums, records);
        for (int64_t j = 0; j < n; j++)
            ckpt_sums_add_record(&total, &records[j]);
        free(records);
        ckpt_part_release(&part);
        ckpt_sums_release(&sums);
    }
    assert_ok(ckpt_commit_finish(&commit, &progress, &total, &err), err);
    ckpt_sums_release(&total);
    ckpt_layout_release(&layout);
    ckpt_lock_close(&lock);
}

static void forget_files(const struct ckpt_reader *reader)
{
    for (int i = 0; i < reader->n_files; i++)
        (void)posix_fadvise(reader->files[i].fd, 0, 0, POSIX_FADV_DONTNEED);
}

static int load_process(struct job *job, struct process *p, const char *path,
                        bool *is_damaged, struct error *err)
{
    struct ckpt_reader reader;
    struct ckpt_part part = {0};
    struct ckpt_sink sink = {take, p};
    int rc = ckpt_reader_open(&reader, path, N_CKPT_SETS, err);
    if (rc == 0)
        rc = ckpt_reader_check(&reader, &job->whole, test_rule(), N_CKPT_SETS, err);
    if (rc == 0 && job->is_past_cache) {
        forget_files(&reader);
        ckpt_reader_bypass_cache(&reader);
    }
    if (rc == 0)
        rc = ckpt_part_init(&part, &p->map, false, err);
    if (rc == 0)
        rc = ckpt_reader_read(&reader, N_CKPT_SETS, &part, &sink, err);
    *is_damaged = reader.is_damaged;
    ckpt_part_release(&part);
    ckpt_reader_close(&reader);
    return rc;
}

static char *whole_file(const char *dir, const char *name, size_t *n)
{
    char path[4096], *data;
    struct error err;
    snprintf(path, sizeof path, "%s/epoch_0_step_1/%s", dir, name);
    assert_ok(fs_read_all(path, 1 << 26, &data, n, &err), err);
    return data;
}

/* -- tests --------------------------------------------------------------------------- */

static void test_ckpt_parts__every_layout_writes_the_same_bytes(void **state)
{
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors",
                                        "trainer.json"};
    struct fixture *f = *state;
    char *first[3];
    size_t n_first[3];
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        struct job job;
        job_open(&job, &shapes[s]);
        save_parts(&job, f->dir, 5, CKPT_MAX_FILE_BYTES);
        for (int i = 0; i < 3; i++) {
            size_t n;
            char *data = whole_file(f->dir, names[i], &n);
            if (s == 0) {
                first[i] = data;
                n_first[i] = n;
                continue;
            }
            assert_int_equal(n, n_first[i]);
            assert_memory_equal(data, first[i], n);
            free(data);
        }
        job_close(&job);
    }
    for (int i = 0; i < 3; i++)
        free(first[i]);
}

static void test_ckpt_parts__every_layout_reads_what_any_other_wrote(void **state)
{
    struct fixture *f = *state;
    char *path = file_path(f, 1, "");
    for (size_t a = 0; a < sizeof shapes / sizeof shapes[0]; a++) {
        struct job writer;
        job_open(&writer, &shapes[a]);
        save_parts(&writer, f->dir, (int64_t)a, a % 2 ? 20000 : CKPT_MAX_FILE_BYTES);
        job_close(&writer);
        for (size_t b = 0; b < sizeof shapes / sizeof shapes[0]; b++) {
            struct job reader;
            struct error err;
            bool is_damaged;
            job_open(&reader, &shapes[b]);
            reader.is_past_cache = (a + b) % 2;
            for (int i = 0; i < reader.n_processes; i++) {
                assert_ok(
                    load_process(&reader, &reader.processes[i], path, &is_damaged, &err),
                    err);
                each_value(&reader.processes[i], (int64_t)a, false);
            }
            job_close(&reader);
        }
    }
    free(path);
}

static void test_ckpt_parts__what_mp_leaves_whole_is_one_run(void **state)
{
    (void)state;
    for (int mp = 1; mp <= 2; mp++) {
        struct shape shape = {mp, 1, 1, 1};
        struct job job;
        struct ckpt_part part;
        struct error err;
        job_open(&job, &shape);
        assert_ok(ckpt_part_init(&part, &job.processes[0].map, true, &err), err);
        for (int64_t i = 0; i < part.n_pieces; i++) {
            const struct ckpt_piece *piece = &part.pieces[i];
            bool is_cut = mp > 1 && strstr(piece->row->name, "proj.weight");
            int64_t whole, n = ckpt_piece_run(piece, 0, piece->n, &whole);
            if (mp == 1 || is_cut)
                assert_int_equal(n, is_cut ? piece->row->shape[1] : piece->n);
            assert_int_equal(whole, 0);
        }
        ckpt_part_release(&part);
        job_close(&job);
    }
}

static void test_ckpt_parts__large_models_are_cut_with_an_index(void **state)
{
    struct fixture *f = *state;
    struct job job;
    char *path = file_path(f, 1, "");
    struct fs_names list;
    struct error err;
    size_t n, n_model = 0, n_index = 0;
    job_open(&job, &shapes[0]);
    save_parts(&job, f->dir, 1, 60000);
    assert_ok(fs_list(path, &list, &err), err);
    for (int64_t i = 0; i < list.n_names; i++) {
        n_model += strncmp(list.names[i], "model-0000", 10) == 0;
        n_index += strstr(list.names[i], ".safetensors.index.json") != NULL;
        if (strstr(list.names[i], ".safetensors") && !strstr(list.names[i], "index")) {
            char *file = join(path, list.names[i]);
            assert_true(file_size(file) < 60000 + 6000); // header included
            free(file);
        }
    }
    assert_true(n_model > 3);
    assert_int_equal(n_index, 2);
    char *index = whole_file(f->dir, "model.safetensors.index.json", &n);
    assert_non_null(strstr(index, "\"total_size\": "));
    assert_non_null(strstr(index, "\"embedding.word.weight\": \"model-00001-of-"));
    assert_null(strstr(index, "exp_avg"));
    free(index);
    fs_names_release(&list);
    job_close(&job);
    free(path);
}

/* One of the processes must find it, and none may take it for something else. */
static void assert_found(struct job *job, const char *path, const char *what)
{
    int n_found = 0;
    for (int i = 0; i < job->n_processes; i++) {
        struct error err;
        bool is_damaged = false;
        if (load_process(job, &job->processes[i], path, &is_damaged, &err) == 0)
            continue;
        if (!is_damaged)
            fail_msg("%s: not known as damage: %s", what, err.text);
        n_found++;
    }
    if (n_found == 0)
        fail_msg("%s: nobody has found it", what);
}

static void test_ckpt_parts__together_processes_find_any_flipped_bit(void **state)
{
    struct fixture *f = *state;
    struct philox_key key = philox_key(1, PHILOX_INIT, 0);
    struct job writer, reader;
    struct fs_names list;
    struct error err;
    char *path = file_path(f, 1, "");
    job_open(&writer, &shapes[8]);
    job_open(&reader, &shapes[9]);
    save_parts(&writer, f->dir, 1, 60000);
    assert_ok(fs_list(path, &list, &err), err);
    for (uint32_t i = 0; i < 60; i++) {
        const char *name = list.names[i % list.n_names];
        char what[256], *file = join(path, name);
        int64_t at =
            (int64_t)((double)philox_uniform(key, i, 0) * (double)file_size(file));
        snprintf(what, sizeof what, "%s, byte %lld", name, (long long)at);
        flip_bit(file, at, (int)(i % 8));
        assert_found(&reader, path, what);
        flip_bit(file, at, (int)(i % 8));
        free(file);
    }
    fs_names_release(&list);
    job_close(&writer);
    job_close(&reader);
    free(path);
}

static void test_ckpt_parts__a_shard_of_another_step_is_found(void **state)
{
    struct fixture *f = *state;
    struct job job;
    struct error err;
    char other[4096], *path = file_path(f, 1, "");
    snprintf(other, sizeof other, "%s/other", f->dir);
    assert_int_equal(mkdir(other, 0777), 0);
    job_open(&job, &shapes[3]);
    save_parts(&job, f->dir, 1, 60000);
    save_parts(&job, other, 2, 60000);
    struct fs_names list;
    assert_ok(fs_list(path, &list, &err), err);
    for (int64_t i = 0; i < list.n_names; i++) {
        char *a = join(path, list.names[i]), there[8192];
        snprintf(there, sizeof there, "%s/epoch_0_step_1/%s", other, list.names[i]);
        if (strstr(list.names[i], "index")) {
            free(a);
            continue; // the same in both
        }
        assert_int_equal(renameat2(AT_FDCWD, a, AT_FDCWD, there, RENAME_EXCHANGE), 0);
        assert_found(&job, path, list.names[i]);
        assert_int_equal(renameat2(AT_FDCWD, a, AT_FDCWD, there, RENAME_EXCHANGE), 0);
        free(a);
    }
    fs_names_release(&list);
    job_close(&job);
    free(path);
}

static void test_ckpt_parts__a_damaged_one_is_set_aside_under_a_free_name(void **state)
{
    struct fixture *f = *state;
    char *path = file_path(f, 1, ""), aside[4096];
    struct error err;
    path[strlen(path) - 1] = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mkdir(path, 0777), 0);
        assert_ok(ckpt_set_aside(path, aside, sizeof aside, &err), err);
    }
    assert_names(f, "epoch_0_step_1.damaged epoch_0_step_1.damaged-2 "
                    "epoch_0_step_1.damaged-3");
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_ckpt_parts__every_layout_writes_the_same_bytes),
        TEST(test_ckpt_parts__every_layout_reads_what_any_other_wrote),
        TEST(test_ckpt_parts__what_mp_leaves_whole_is_one_run),
        TEST(test_ckpt_parts__large_models_are_cut_with_an_index),
        TEST(test_ckpt_parts__together_processes_find_any_flipped_bit),
        TEST(test_ckpt_parts__a_shard_of_another_step_is_found),
        TEST(test_ckpt_parts__a_damaged_one_is_set_aside_under_a_free_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
