#include "board/run_config.h"

#include "base/fs.h"
#include "base/grow.h"
#include "board/run_scan.h"
#include "config/config_yaml.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MOST ((int64_t)1 << 20)

static void drop_lines(struct run_config *c)
{
    for (int64_t i = 0; i < c->n_lines; i++)
        free(c->lines[i].key);
    c->n_lines = 0;
}

void run_config_release(struct run_config *c)
{
    drop_lines(c);
    free(c->lines);
    *c = (struct run_config){0};
}

/* All keys of a configuration are inside one section, whose name says nothing. */
static const char *inner_key(const char *path)
{
    const char *dot = strchr(path, '.');
    return dot ? dot + 1 : path;
}

static int add_value(void *context, const struct config_node *node, struct error *err)
{
    struct run_config *c = context;
    if (node->kind == NODE_SECTION || c->n_lines == RUN_CONFIG_KEYS_MOST)
        return 0;
    const char *key = inner_key(node->path);
    size_t n_key = strlen(key) + 1, n_value = strlen(node->text) + 1;
    char *line = malloc(n_key + n_value);
    if (!line || grow_array(&c->lines, &c->capacity, c->n_lines + 1, sizeof *c->lines)) {
        free(line);
        return error_set(err, ERROR_RUNTIME, "out of memory");
    }
    memcpy(line, key, n_key);
    memcpy(line + n_key, node->text, n_value);
    for (char *p = line + n_key; *p; p++)
        if (*p == CONFIG_YAML_SEPARATOR)
            *p = ',';
    c->lines[c->n_lines].key = line;
    c->lines[c->n_lines++].value = line + n_key;
    return 0;
}

static void read_lines(struct run_config *c, int fd, int64_t n)
{
    struct error err;
    char *text = malloc((size_t)n + 1);
    if (!text || fs_pread_exact(fd, text, (size_t)n, 0))
        snprintf(c->problem, sizeof c->problem, RUN_CONFIG_NAME " cannot be read");
    else if (config_yaml_read(RUN_CONFIG_NAME, text, (size_t)n, add_value, c, &err)) {
        drop_lines(c);
        snprintf(c->problem, sizeof c->problem, "%.500s", err.text);
    }
    free(text);
}

bool run_config_refresh(struct run_config *c, const char *dir)
{
    char path[PATH_MAX];
    struct error ignored;
    struct stat file;
    if (fs_join(path, sizeof path, dir, RUN_CONFIG_NAME, &ignored) || lstat(path, &file))
        return false;
    int64_t changed_ns = (int64_t)file.st_mtim.tv_sec * 1000000000 + file.st_mtim.tv_nsec;
    if (!S_ISREG(file.st_mode) ||
        (c->inode == file.st_ino && c->n_bytes == file.st_size &&
         c->changed_ns == changed_ns))
        return false;
    drop_lines(c);
    c->problem[0] = 0;
    c->inode = file.st_ino;
    c->n_bytes = file.st_size;
    c->changed_ns = changed_ns;
    if (file.st_size > FILE_BYTES_MOST) {
        snprintf(c->problem, sizeof c->problem,
                 RUN_CONFIG_NAME " has %lld bytes, too many for a configuration",
                 (long long)file.st_size);
        return true;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0) {
        read_lines(c, fd, file.st_size);
        close(fd);
    }
    return true;
}

const char *run_config_value(const struct run_config *c, const char *key)
{
    for (int64_t i = 0; i < c->n_lines; i++)
        if (strcmp(c->lines[i].key, key) == 0)
            return c->lines[i].value;
    return NULL;
}

double run_config_number(const struct run_config *c, const char *key)
{
    const char *value = run_config_value(c, key);
    char *end;
    if (!value || !value[0])
        return RUN_NONE;
    double x = strtod(value, &end);
    return isfinite(x) && *end == 0 ? x : RUN_NONE;
}

void run_config_write(const struct run_config *c, struct board_text *out)
{
    board_text_put(out, "{\"lines\":[");
    for (int64_t i = 0; i < c->n_lines; i++) {
        board_text_comma(out);
        board_text_put(out, "[");
        board_text_string(out, c->lines[i].key, strlen(c->lines[i].key));
        board_text_put(out, ",");
        board_text_string(out, c->lines[i].value, strlen(c->lines[i].value));
        board_text_put(out, "]");
    }
    board_text_put(out, "]");
    if (c->problem[0]) {
        board_text_key(out, "problem");
        board_text_string(out, c->problem, strlen(c->problem));
    }
    board_text_put(out, "}");
}
