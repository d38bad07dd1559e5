/*
 * Any bytes as a configuration file: either it loads, and then what it prints, as JSON
 * and as YAML, loads back to the same, or there is one sentence of error. Never a crash.
 *
 *     clang -fsanitize=fuzzer,address,undefined ... tests/fuzz/fuzz_yaml.c
 */
#include "base/log.h"
#include "config/config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What `trefoil config` prints is a configuration file of the same meaning. */
static void check_printed(const struct config *cfg, const char *json)
{
    char *text = NULL;
    size_t n;
    struct config again;
    struct error err;
    FILE *out = open_memstream(&text, &n);
    CHECK(out, "out of memory");
    config_print(cfg, out);
    fclose(out);
    if (config_load_text(&again, "printed.yaml", text, n, NULL, 0, 1, &err))
        CHECK(false, "%s", err.text);
    char *json_again = config_to_json(&again);
    CHECK(strcmp(json, json_again) == 0, "printing changed the configuration");
    free(json_again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config cfg, again;
    struct error err = {.text = ""};
    log_set_level(LOG_ERROR);
    if (config_load_text(&cfg, "fuzz.yaml", (const char *)data, size, NULL, 0, 1, &err)) {
        CHECK(err.kind == ERROR_INPUT && err.text[0], "an error without a sentence");
        return 0;
    }
    char *json = config_to_json(&cfg);
    if (config_from_json(&again, json, &err))
        CHECK(false, "%s", err.text);
    char *json_again = config_to_json(&again);
    CHECK(strcmp(json, json_again) == 0, "JSON changed the configuration");
    free(json_again);
    check_printed(&cfg, json);
    free(json);
    return 0;
}
