/* Checkpoints: what is saved comes back bit for bit, what is damaged is found. */
#include "ckpt_fixture.h"

#include "ckpt/ckpt_manifest.h"
#include "ckpt/safetensors.h"

#include <sys/resource.h>

static const char *const file_names[] = {"model.safetensors", "optimizer.safetensors",
                                         "trainer.json"};

/* -- round trips --------------------------------------------------------------------- */

static void test_ckpt__round_trip_is_bitwise(void **state)
{
    struct fixture *f = *state;
    char path[4096], *expected = file_path(f, 12, "");
    struct error err;
    fill_state(&f->state, 12);
    assert_ok(ckpt_save(f->dir, &f->state, &keep_all, path, sizeof path, &err), err);
    expected[strlen(expected) - 1] = 0;
    assert_string_equal(path, expected);
    assert_ok(ckpt_load(path, &f->loaded, &err), err);
    assert_state_equal(&f->state, &f->loaded);

    memset(f->loaded.flat[0], 0, (size_t)f->table.n_flat * sizeof(float));
    assert_ok(ckpt_load_params(path, &f->table, f->loaded.flat[0], &err), err);
    assert_state_equal(&f->state, &f->loaded);
    assert_names(f, "epoch_0_step_12 latest");
    free(expected);
}

static void test_ckpt__tensors_larger_than_a_hash_block_round_trip(void **state)
{
    struct fixture *f = *state;
    struct param_table table;
    struct error err;
    char path[4096];
    make_table(&table, 70001, 16, 1); // 4.27 MiB of word embeddings: five blocks
    struct ckpt_state big = make_state(&table), back = make_state(&table);
    fill_state(&big, 3);
    assert_ok(ckpt_save(f->dir, &big, &keep_all, path, sizeof path, &err), err);
    assert_ok(ckpt_load(path, &back, &err), err);
    assert_state_equal(&big, &back);

    char *model = join(path, "model.safetensors");
    flip_bit(model, 4300000, 3); // in the fifth
    assert_int_equal(ckpt_load(path, &back, &err), -1);
    assert_says(&err, "embedding.word.weight");
    assert_says(&err, "bytes 4194304 to");
    free(model);
    free_state(&big);
    free_state(&back);
    param_table_release(&table);
}

static void test_ckpt__info_tells_counters_and_configuration(void **state)
{
    struct fixture *f = *state;
    struct ckpt_info info;
    struct error err;
    save(f, 5, 0);
    char *path = file_path(f, 5, "");
    assert_ok(ckpt_read_info(path, &info, &err), err);
    assert_int_equal(info.progress.step, 5);
    assert_int_equal(info.progress.epoch, 0);
    assert_int_equal(info.progress.consumed_samples, 40);
    assert_int_equal(info.n_parameters, f->table.n_elements);
    assert_string_equal(info.program_version, TREFOIL_VERSION);
    assert_non_null(strstr(info.config_json, "\"seed\": 7"));
    ckpt_info_release(&info);
    free(path);
}

static void test_ckpt__model_file_is_plain_safetensors_in_table_order(void **state)
{
    struct fixture *f = *state;
    struct safetensors st;
    struct error err;
    save(f, 1, 0);
    char *path = file_path(f, 1, "model.safetensors");
    int fd = open(path, O_RDONLY);
    assert_ok(safetensors_read_header(&st, fd, path, NULL, &err), err);
    assert_int_equal(st.n_tensors, f->table.n_params);
    assert_int_equal(st.header_bytes % 8, 0);
    for (int64_t i = 0; i < st.n_tensors; i++) {
        const struct param *p = &f->table.params[i];
        float *data = malloc((size_t)p->n_elements * sizeof *data);
        assert_string_equal(st.tensors[i].name, p->name);
        assert_int_equal(st.tensors[i].dtype, SAFETENSORS_F32);
        assert_ok(safetensors_read_f32(&st, &st.tensors[i], fd, path, 0, p->n_elements,
                                       data, &err),
                  err);
        assert_memory_equal(data, f->state.flat[0] + p->offset,
                            (size_t)p->n_elements * sizeof *data);
        free(data);
    }
    safetensors_release(&st);
    close(fd);
    free(path);
}

static void test_ckpt__announced_bytes_cover_what_is_written(void **state)
{
    struct fixture *f = *state;
    int64_t total = 0;
    save(f, 1, 0);
    for (int i = 0; i < 3; i++) {
        char *path = file_path(f, 1, file_names[i]);
        total += file_size(path);
        free(path);
    }
    assert_true((uint64_t)total <= ckpt_bytes(&f->table, test_rule()));
    assert_true(ckpt_bytes(&f->table, test_rule()) < (uint64_t)total + 2000000);
}

/* -- damage -------------------------------------------------------------------------- */

/* Neither the directory nor the checkpoint itself may be accepted. */
static void assert_refused(struct fixture *f, int64_t step, const char *what)
{
    char path[4096];
    struct error err;
    if (ckpt_resolve(f->dir, N_CKPT_SETS, path, sizeof path, &err) == 0)
        fail_msg("%s: resolved to '%s'", what, path);
    assert_says(&err, "none of the");
    char *direct = file_path(f, step, "");
    if (ckpt_load(direct, &f->loaded, &err) == 0)
        fail_msg("%s: loaded '%s'", what, direct);
    assert_int_equal(err.kind, ERROR_INPUT);
    free(direct);
}

static void test_ckpt__a_flipped_bit_anywhere_is_found(void **state)
{
    struct fixture *f = *state;
    struct philox_key key = philox_key(1, PHILOX_INIT, 0);
    save(f, 4, 0);
    for (uint32_t i = 0; i < 240; i++) {
        char what[128];
        char *path = file_path(f, 4, file_names[i % 3]);
        int64_t n = file_size(path);
        /* every eighth is near an end, where headers and self-hash are */
        int64_t at = (int64_t)((double)philox_uniform(key, i, 0) * (double)n);
        if (i % 8 == 0)
            at = i % 16 == 0 ? i / 16 : n - 1 - i / 16;
        snprintf(what, sizeof what, "%s, byte %lld, bit %u", file_names[i % 3],
                 (long long)at, i % 7);
        flip_bit(path, at, (int)(i % 7));
        assert_refused(f, 4, what);
        flip_bit(path, at, (int)(i % 7));
        free(path);
    }
    assert_resolves_to(f, 4);
}

static void test_ckpt__a_changed_header_that_still_parses_is_found(void **state)
{
    struct fixture *f = *state;
    struct error err;
    char *data;
    size_t n;
    save(f, 4, 0);
    char *path = file_path(f, 4, "model.safetensors");
    assert_ok(fs_read_all(path, 1 << 24, &data, &n, &err), err);
    const char *value = strstr(data + 8, "\"pt\""); // of the metadata
    assert_non_null(value);
    flip_bit(path, value + 1 - data, 0);
    assert_refused(f, 4, path);
    free(data);
    free(path);
}

static void test_ckpt__files_of_another_length_are_found(void **state)
{
    struct fixture *f = *state;
    struct error err;
    save(f, 4, 0);
    for (int i = 0; i < 3; i++) {
        char *path = file_path(f, 4, file_names[i]), *data;
        size_t n;
        assert_ok(fs_read_all(path, 1 << 24, &data, &n, &err), err);
        for (size_t cut = 0; cut < 22; cut++) {
            size_t n_left = cut < 20 ? n * cut / 20 : cut == 20 ? n - 1 : n + 1;
            assert_ok(fs_write_atomic(path, data, n_left, &err), err); // n + 1: a NUL
            assert_refused(f, 4, path);
        }
        assert_ok(fs_write_atomic(path, data, n, &err), err);
        free(data);
        free(path);
    }
    assert_resolves_to(f, 4);
}

static void test_ckpt__a_missing_file_is_found(void **state)
{
    struct fixture *f = *state;
    char found[4096];
    struct error err;
    for (int i = 0; i < 3; i++) {
        save(f, 4, 0);
        char *path = file_path(f, 4, file_names[i]);
        assert_int_equal(unlink(path), 0);
        assert_refused(f, 4, path);
        free(path);
    }
    /* but parameters alone need no optimizer */
    save(f, 4, 0);
    char *optimizer = file_path(f, 4, "optimizer.safetensors");
    char *path = file_path(f, 4, "");
    assert_int_equal(unlink(optimizer), 0);
    assert_ok(ckpt_resolve(path, N_CKPT_SETS, found, sizeof found, &err), err);
    assert_ok(ckpt_load_params(found, &f->table, f->loaded.flat[0], &err), err);
    assert_memory_equal(f->loaded.flat[0], f->state.flat[0],
                        (size_t)f->table.n_flat * sizeof(float));
    free(optimizer);
    free(path);
}

static void exchange(const char *a, const char *b)
{
    assert_int_equal(renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE), 0);
}

static void test_ckpt__files_of_another_step_are_found(void **state)
{
    struct fixture *f = *state;
    save(f, 4, 0);
    save(f, 8, 0);
    for (int i = 0; i < 3; i++) {
        char *a = file_path(f, 4, file_names[i]), *b = file_path(f, 8, file_names[i]);
        exchange(a, b);
        assert_refused(f, 8, file_names[i]);
        exchange(a, b);
        free(a);
        free(b);
    }
    assert_resolves_to(f, 8);
    char *a = file_path(f, 4, ""), *b = file_path(f, 8, ""), found[4096];
    struct error err;
    a[strlen(a) - 1] = b[strlen(b) - 1] = 0;
    exchange(a, b); // each whole, but under the other's name
    assert_int_equal(ckpt_resolve(f->dir, N_CKPT_SETS, found, sizeof found, &err), -1);
    assert_says(&err, "belongs to another checkpoint");
    free(a);
    free(b);
}

/* -- finding the right one ----------------------------------------------------------- */

/* Run ckpt_resolve() with what it logs caught in `log`. */
static int resolve_logged(const char *dir, char *path, char *log, size_t log_size,
                          struct error *err)
{
    FILE *caught = tmpfile();
    int saved = dup(STDERR_FILENO);
    fflush(stderr);
    dup2(fileno(caught), STDERR_FILENO);
    log_set_level(LOG_INFO);
    int rc = ckpt_resolve(dir, N_CKPT_SETS, path, 4096, err);
    log_set_level(LOG_ERROR);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(caught);
    log[fread(log, 1, log_size - 1, caught)] = 0;
    fclose(caught);
    return rc;
}

static void test_ckpt__resolve_takes_the_newest_valid_and_names_the_skipped(void **state)
{
    struct fixture *f = *state;
    char path[4096], log[8192], *expected = file_path(f, 9, "");
    struct error err;
    save(f, 2, 0);
    save(f, 9, 0);
    save(f, 10, 0);
    save(f, 100, 0);
    char *model = file_path(f, 100, "model.safetensors");
    char *manifest = file_path(f, 10, "trainer.json");
    flip_bit(model, file_size(model) - 1, 0);
    assert_int_equal(unlink(manifest), 0);
    assert_ok(resolve_logged(f->dir, path, log, sizeof log, &err), err);
    expected[strlen(expected) - 1] = 0;
    assert_string_equal(path, expected);
    assert_non_null(strstr(log, "/epoch_0_step_100': "));
    assert_non_null(strstr(log, "final_norm.bias"));
    assert_non_null(strstr(log, "/epoch_0_step_10': "));
    assert_null(strstr(log, "epoch_0_step_2"));
    assert_int_equal(ckpt_newest_step(f->dir), 100);
    assert_resolves_to(f, 9);
    free(expected);
    free(model);
    free(manifest);
}

static void test_ckpt__what_cannot_be_read_now_is_not_damaged(void **state)
{
    struct fixture *f = *state;
    struct ckpt_manifest m;
    struct rlimit before, none;
    struct error err;
    bool is_damaged = false;
    save(f, 3, 0);
    char *dir = join(f->dir, "epoch_0_step_3");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int rc = ckpt_manifest_read(&m, dir, &is_damaged, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(rc, -1);
    assert_says(&err, "Too many open files");
    assert_int_equal(err.kind, ERROR_RUNTIME);
    assert_false(is_damaged);
    free(dir);
}

static void test_ckpt__resolve_skips_nothing_that_cannot_be_read_now(void **state)
{
    struct fixture *f = *state;
    struct rlimit before, few;
    struct error err;
    char path[4096];
    save(f, 3, 0);
    save(f, 4, 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int next = open("/dev/null", O_RDONLY); // one for the directory, none for its files
    close(next);
    few = (struct rlimit){.rlim_cur = (rlim_t)next + 1, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int rc = ckpt_resolve(f->dir, N_CKPT_SETS, path, sizeof path, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(rc, -1);
    assert_int_equal(err.kind, ERROR_RUNTIME);
    assert_resolves_to(f, 4);
}

/* -- what a manifest may say --------------------------------------------------------- */

static void test_ckpt__numbers_that_no_run_has_are_damage(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *what;
        struct ckpt_progress progress;
    } cases[] = {
        {"consumed_samples", {.step = 3, .consumed_samples = (int64_t)1 << 62}},
        {"consumed_samples", {.step = 3, .consumed_samples = 2}},
        {"consumed_samples", {.step = 3}},
        {"consumed_samples", {.consumed_samples = 8}},
        {"epoch", {.step = 3, .consumed_samples = 24, .epoch = 25}},
        {"loss_scaler", {.step = 3, .consumed_samples = 24, .scaler.n_skipped = 4}},
        {"loss_scaler", {.step = 3, .consumed_samples = 24, .scaler.good_steps = 4}},
        {"loss_scaler", {.step = 3, .consumed_samples = 24, .scaler.bad_steps = 4}},
        {"scale", {.step = 3, .consumed_samples = 24, .scaler.scale = -1}},
        {"wrong type", {.step = 3, .consumed_samples = -1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct error err;
        char path[4096];
        bool is_damaged = false;
        struct ckpt_manifest m;
        const char *config = f->state.progress.config_json;
        fill_state(&f->state, 3);
        f->state.progress = cases[i].progress;
        f->state.progress.config_json = config;
        assert_ok(ckpt_save(f->dir, &f->state, &keep_all, path, sizeof path, &err), err);
        assert_int_equal(ckpt_manifest_read(&m, path, &is_damaged, &err), -1);
        assert_true(is_damaged);
        assert_says(&err, cases[i].what);
        assert_ok(fs_remove_tree(path, &err), err);
    }
}

static void test_ckpt__a_run_is_named_by_what_it_computes_or_by_chance(void **state)
{
    struct fixture *f = *state;
    static const char config[] =
        "{\"seed\": 7, \"Model\": {\"a\": 1}, \"Distributed\": {\"mp_degree\": 1}}";
    static const char on_two[] =
        "{\"Model\": {\"a\": 1}, \"seed\": 7, \"Distributed\": {\"mp_degree\": 2}}";
    static const char other[] = "{\"seed\": 8, \"Model\": {\"a\": 1}}";
    char id[5][CKPT_RUN_ID_BYTES];
    ckpt_run_id_make(id[0], f->dir, config, "data");
    ckpt_run_id_make(id[1], f->dir, on_two, "data");
    ckpt_run_id_make(id[2], f->dir, other, "data");
    save(f, 3, 0);
    ckpt_run_id_make(id[3], f->dir, config, "data");
    ckpt_run_id_make(id[4], f->dir, config, "data");
    assert_int_equal(strlen(id[0]), 16);
    assert_string_equal(id[0], id[1]);
    assert_string_not_equal(id[0], id[2]);
    assert_string_not_equal(id[0], id[3]);
    assert_string_not_equal(id[3], id[4]);
}

static void test_ckpt__resolve_refuses_what_holds_none(void **state)
{
    struct fixture *f = *state;
    char path[4096];
    struct error err;
    assert_int_equal(ckpt_resolve(f->dir, N_CKPT_SETS, path, sizeof path, &err), -1);
    assert_says(&err, "holds no checkpoint");
    assert_int_equal(ckpt_newest_step(f->dir), -1);
    char *missing = join(f->dir, "nowhere");
    assert_int_equal(ckpt_resolve(missing, N_CKPT_SETS, path, sizeof path, &err), -1);
    assert_says(&err, "not there");
    assert_ok(fs_write_atomic(missing, "x", 1, &err), err);
    assert_int_equal(ckpt_resolve(missing, N_CKPT_SETS, path, sizeof path, &err), -1);
    assert_says(&err, "not a directory");
    free(missing);
}

static void test_ckpt__odd_names_and_a_garbage_latest_do_not_matter(void **state)
{
    struct fixture *f = *state;
    static const char *const odd[] = {"epoch_0_step_99999999999999999999999",
                                      "epoch_0_step_",
                                      "epoch_0_step_07",
                                      "epoch_-1_step_50",
                                      "epoch_0_step_60x",
                                      "step_70",
                                      "epoch_0_step_80.tmp-1-0"};
    struct error err;
    save(f, 3, 0);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        char *path = join(f->dir, odd[i]);
        assert_int_equal(mkdir(path, 0777), 0);
        free(path);
    }
    assert_int_equal(ckpt_newest_step(f->dir), 3);
    char *latest = join(f->dir, "latest");
    assert_ok(fs_write_atomic(latest, "../../etc\n\xff", 11, &err), err);
    assert_resolves_to(f, 3);
    assert_int_equal(unlink(latest), 0);
    assert_int_equal(mkdir(latest, 0777), 0);
    save(f, 4, 0); // the hint cannot be written: a warning, not a failure
    assert_resolves_to(f, 4);
    free(latest);
}

static void test_ckpt__another_architecture_is_refused_with_the_difference(void **state)
{
    struct fixture *f = *state;
    static const struct {
        int64_t V, H, L;
        const char *says[2];
    } cases[] = {
        {38, 8, 2, {"(1 difference)", "[37, 8], the model's is [38, 8]"}},
        {37, 12, 2, {"'embedding.word.weight' is [37, 8]", "; ..."}},
        {37, 8, 3, {"(12 differences)", "'layers.2.ln1.weight' is missing"}},
        {37, 8, 1, {"(12 differences)", "'layers.1.ln1.weight' is not in the model"}},
    };
    save(f, 3, 0);
    char *path = file_path(f, 3, "");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct param_table table;
        struct error err;
        make_table(&table, cases[i].V, cases[i].H, cases[i].L);
        struct ckpt_state other = make_state(&table);
        assert_int_equal(ckpt_load(path, &other, &err), -1);
        assert_int_equal(err.kind, ERROR_INPUT);
        assert_says(&err, cases[i].says[0]);
        assert_says(&err, cases[i].says[1]);
        free_state(&other);
        param_table_release(&table);
    }
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_ckpt__round_trip_is_bitwise),
        TEST(test_ckpt__tensors_larger_than_a_hash_block_round_trip),
        TEST(test_ckpt__info_tells_counters_and_configuration),
        TEST(test_ckpt__model_file_is_plain_safetensors_in_table_order),
        TEST(test_ckpt__announced_bytes_cover_what_is_written),
        TEST(test_ckpt__a_flipped_bit_anywhere_is_found),
        TEST(test_ckpt__a_changed_header_that_still_parses_is_found),
        TEST(test_ckpt__files_of_another_length_are_found),
        TEST(test_ckpt__a_missing_file_is_found),
        TEST(test_ckpt__files_of_another_step_are_found),
        TEST(test_ckpt__resolve_takes_the_newest_valid_and_names_the_skipped),
        TEST(test_ckpt__what_cannot_be_read_now_is_not_damaged),
        TEST(test_ckpt__resolve_skips_nothing_that_cannot_be_read_now),
        TEST(test_ckpt__numbers_that_no_run_has_are_damage),
        TEST(test_ckpt__a_run_is_named_by_what_it_computes_or_by_chance),
        TEST(test_ckpt__resolve_refuses_what_holds_none),
        TEST(test_ckpt__odd_names_and_a_garbage_latest_do_not_matter),
        TEST(test_ckpt__another_architecture_is_refused_with_the_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
