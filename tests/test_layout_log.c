/*
 * The log of a pipeline's segments, line by line against the one that PaddleFleetX
 * published for the toy recipe; what differs on purpose is masked and said.
 */
#include "test.h"

#include "base/fs.h"
#include "parallel/layout.h"

#include <unistd.h>

#define BLOCK(i)                                                                         \
    i ": TransformerDecoderLayer(d_model=1024, nhead=2, dim_feedforward=4096, "          \
      "dropout=0.1, activation=gelu, attn_dropout=0.1, act_dropout=0.1, "                \
      "weight_attr=<>, bias_attr=None, num_partitions=2)\n"
#define EMBEDDING(i)                                                                     \
    i ": EmbeddingPipe(vocab_size=51200, hidden_size=1024, hidden_dropout_prob=0.1, "    \
      "max_position_embeddings=1024, type_vocab_size=16, initializer_range=0.02)\n"

/* The published lines without what the logger puts in front. Masked: the address of an
 * object in weight_attr; and stage 1 begins on rank 2, where the original prints 0. */
static const char published[] =
    "Start Recompute for \n"
    "start segment network..\n"
    "segment result:0, 3, 7\n"
    "stage=0, global_rank=0 ,layer_number=3\n" EMBEDDING("0") BLOCK("1")
        BLOCK("2") "stage=1, global_rank=2 ,layer_number=4\n" BLOCK("3")
            BLOCK("4") "5: LayerNorm(normalized_shape=1024)\n" EMBEDDING(
                "6") "loss: GPTPretrainingCriterionPipe\n";

/* What layout_log() writes for the recipe, without times and what is in <>; malloc'ed. */
static char *log_of(const char *recipe, const char *option)
{
    struct config cfg;
    struct error err;
    char path[4096], name[] = "/tmp/trefoil-log-XXXXXX", copy[128] = "", *log, *text;
    char *options[] = {copy};
    size_t n, n_text = 0;
    snprintf(path, sizeof path, "%s/../configs/%s", TEST_SOURCE_DIR, recipe);
    snprintf(copy, sizeof copy, "%s", option ? option : "");
    assert_ok(config_load(&cfg, path, options, option ? 1 : 0, &err), err);
    int fd = mkstemp(name), kept = dup(STDERR_FILENO);
    assert_true(fd >= 0 && kept >= 0);
    fflush(stderr);
    dup2(fd, STDERR_FILENO);
    layout_log(&cfg);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(fd);
    close(kept);
    assert_ok(fs_read_all(name, 1 << 20, &log, &n, &err), err);
    unlink(name);
    text = malloc(n + 1);
    assert_non_null(text);
    for (char *line = log, *end; (end = strchr(line, '\n')); line = end + 1) {
        char *start = strstr(line, " - ") + 3;
        for (char *c = start; c <= end; c++) {
            text[n_text++] = *c;
            if (*c == '<')
                c = strchr(c, '>') - 1;
        }
    }
    text[n_text] = 0;
    free(log);
    return text;
}

static void test_layout_log__is_the_published_one(void **state)
{
    (void)state;
    char *text = log_of("gpt_toy_dp2_mp2_pp2.yaml", NULL);
    char *rest = strstr(text, "Rank0 build layer");
    assert_non_null(rest);
    assert_string_equal(rest, "Rank0 build layer 0-2, 2/4 layers\n"
                              "Rank2 build layer 2-4, 2/4 layers\n");
    *rest = 0;
    assert_string_equal(text, published);
    free(text);
}

static void test_layout_log__tells_of_recomputation_only_where_there_is_one(void **state)
{
    (void)state;
    char *text = log_of("gpt_toy_dp2_mp2_pp2.yaml", "use_recompute=False");
    assert_int_equal(strncmp(text, "start segment network..\n", 24), 0);
    free(text);
    text = log_of("gpt_345m_single.yaml", NULL);
    assert_string_equal(text, "");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_log__is_the_published_one),
        cmocka_unit_test(test_layout_log__tells_of_recomputation_only_where_there_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
