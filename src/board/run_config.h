/* run_config - the configuration that a run left in its directory, key by key. */
#ifndef BOARD_RUN_CONFIG_H
#define BOARD_RUN_CONFIG_H

#include "base/base.h"
#include "board/board_text.h"

#include <sys/types.h>

#define RUN_CONFIG_NAME "config.yaml"
#define RUN_CONFIG_KEYS_MOST 2000

struct run_config {
    struct {
        char *key, *value; // one allocation; the key is dotted, without the outermost one
    } * lines;
    int64_t n_lines, capacity;
    ino_t inode; // of the file that was read
    int64_t n_bytes, changed_ns;
    char problem[512]; // why the file cannot be shown; "": it can, or there is none
};

/* Read dir/config.yaml again if it has changed. True: it had. */
bool run_config_refresh(struct run_config *c, const char *dir);
void run_config_release(struct run_config *c);

/* The value at the dotted key; NULL: none. Borrowed until the next refresh. */
const char *run_config_value(const struct run_config *c, const char *key);
/* The same as a number; NAN: none. */
double run_config_number(const struct run_config *c, const char *key);

/* {"lines": [[key, value], ...]} */
void run_config_write(const struct run_config *c, struct board_text *out);

#endif
