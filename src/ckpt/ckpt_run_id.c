/*
 * Runs are told apart so that one never prunes another's checkpoints. A random name for
 * each would do, but for one promise: a state is the same bytes whatever wrote it. So a
 * run that has a directory to itself is named by the hash of what decides its numbers,
 * and only those that could be mistaken for another get random bits.
 */
#include "ckpt/ckpt.h"
#include "ckpt/ckpt_manifest.h"
#include "ckpt/ckpt_scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* What a run computes with, whatever the layout; malloc'ed, or NULL. */
static char *describe(const char *config_json, const char *data_fingerprint)
{
    static const char *const members[] = {"seed", "Model", "Optimizer", "mix_precision"};
    json_t *config = json_loads(config_json, 0, NULL);
    json_t *facts = json_object();
    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        json_object_set(facts, members[i], json_object_get(config, members[i]));
    json_object_set(
        facts, "batch",
        json_object_get(json_object_get(config, "batch_size"), "global_batch_size"));
    json_object_set_new(facts, "data", json_string(data_fingerprint));
    char *text = json_dumps(facts, JSON_SORT_KEYS | JSON_COMPACT);
    json_decref(facts);
    json_decref(config);
    return text;
}

/* An imported model, of step 0, is no run's. */
static bool holds_none(const char *output_dir)
{
    struct ckpt_list list;
    struct error ignored;
    bool is_empty = ckpt_scan(output_dir, &list, &ignored) == 0;
    for (int64_t i = 0; i < list.n_names; i++)
        is_empty = is_empty && list.names[i].step == 0;
    ckpt_list_release(&list);
    return is_empty;
}

void ckpt_run_id_make(char id[CKPT_RUN_ID_BYTES], const char *output_dir,
                      const char *config_json, const char *data_fingerprint)
{
    uint64_t bits;
    char *text = holds_none(output_dir) ? describe(config_json, data_fingerprint) : NULL;
    if (text)
        ckpt_hash_text(text, strlen(text), id);
    else if (getrandom(&bits, sizeof bits, 0) == sizeof bits)
        snprintf(id, CKPT_RUN_ID_BYTES, "%016llx", (unsigned long long)bits);
    else
        id[0] = 0;
    free(text);
}
