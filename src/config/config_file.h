/*
 * config_file - one file of a configuration, and the names in it that are no keys here.
 *
 * Local to src/config.
 */
#ifndef CONFIG_CONFIG_FILE_H
#define CONFIG_CONFIG_FILE_H

#include "config/config_load.h"

/* Apply the n bytes at `text`, after the files they build on. `path` is the file they are
 * from, or stands for one. */
MUST_CHECK int config_file_apply(struct config_loader *l, const char *path,
                                 const char *text, size_t n, struct error *err);

/* A name that is no key, with its value, or with text.text NULL: a section. */
MUST_CHECK int config_foreign_apply(struct config_loader *l,
                                    const struct config_foreign *row,
                                    const struct config_given *given, struct error *err);

/* When all is applied: refuse what is left to refuse, set what foreign names decide. */
MUST_CHECK int config_foreign_finish(struct config_loader *l, struct error *err);

/* Name what is not used, in one line of log. */
void config_foreign_log(const struct config_loader *l);

#endif
