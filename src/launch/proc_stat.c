#include "launch/proc_stat.h"

#include "base/fs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENVIRONMENT_BYTES_MOST (1 << 20)

/* The text of a small file of /proc; false: there is none. */
static bool read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* Where a field begins in the text of a stat file. The second field is the program's name
 * in brackets, with any characters in it. */
static const char *find_field(const char *text, int wanted)
{
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < wanted; field++) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    return at;
}

uint64_t proc_stat_field(pid_t pid, int field)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    const char *at = read_text(path, text, sizeof text) ? find_field(text, field) : NULL;
    return at ? strtoull(at, NULL, 10) : 0;
}

static char state_in(const char *path)
{
    char text[1024];
    const char *at =
        read_text(path, text, sizeof text) ? find_field(text, PROC_STATE) : NULL;
    return at ? *at : '\0';
}

char proc_stat_state(pid_t pid)
{
    char path[320], dir[64];
    struct fs_names threads;
    struct error ignored;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    char state = state_in(path);
    if (state != 'S' && state != 'R')
        return state;
    snprintf(dir, sizeof dir, "/proc/%d/task", (int)pid);
    if (fs_list(dir, &threads, &ignored))
        return state;
    for (int64_t i = 0; i < threads.n_names && state != 'D'; i++) {
        snprintf(path, sizeof path, "%s/%s/stat", dir, threads.names[i]);
        if (state_in(path) == 'D')
            state = 'D';
    }
    fs_names_release(&threads);
    return state;
}

static uint64_t number_after(const char *text, const char *mark)
{
    const char *at = strstr(text, mark);
    return at ? strtoull(at + strlen(mark), NULL, 10) : 0;
}

void proc_stat_swap(pid_t pid, uint64_t *swapped_kb, uint64_t *resident_kb)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    bool is_there = read_text(path, text, sizeof text);
    *swapped_kb = is_there ? number_after(text, "\nVmSwap:") : 0;
    *resident_kb = is_there ? number_after(text, "\nVmRSS:") : 0;
}

bool proc_stat_environment(pid_t pid, const char *name, char *value, size_t size)
{
    char path[64];
    char *text;
    size_t n, n_name = strlen(name);
    struct error ignored;
    bool is_found = false;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    if (fs_read_all(path, ENVIRONMENT_BYTES_MOST, &text, &n, &ignored))
        return false;
    for (const char *at = text; at < text + n && !is_found; at += strlen(at) + 1)
        if (strncmp(at, name, n_name) == 0) {
            snprintf(value, size, "%s", at + n_name);
            is_found = true;
        }
    free(text);
    return is_found;
}
