/*
 * Any bytes as a configuration file: either it loads, and then what it prints as JSON
 * loads back to the same, or there is one sentence of error. Never a crash.
 *
 *     clang -fsanitize=fuzzer,address,undefined ... tests/fuzz/fuzz_yaml.c
 */
#include "base/log.h"
#include "config/config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config cfg, again;
    struct error err = {.text = ""};
    log_set_level(LOG_ERROR);
    if (config_load_text(&cfg, "fuzz.yaml", (const char *)data, size, NULL, 0, &err)) {
        CHECK(err.kind == ERROR_INPUT && err.text[0], "an error without a sentence");
        return 0;
    }
    char *json = config_to_json(&cfg);
    if (config_from_json(&again, json, &err))
        CHECK(false, "%s", err.text);
    char *json_again = config_to_json(&again);
    CHECK(strcmp(json, json_again) == 0, "JSON changed the configuration");
    free(json_again);
    free(json);
    return 0;
}
