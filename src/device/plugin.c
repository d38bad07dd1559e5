#include "device/plugin.h"

#include "base/fs.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLUGIN_FILE "libtrefoil_cuda.so"
#define REMEDY "-o device=cpu trains on the processor"

/* The plug-in that was opened, and stays; set by the first thread, before others are. */
static const struct plugin *opened;

/* -- where it is --------------------------------------------------------------------- */

struct places {
    char paths[2][PATH_MAX];
    int n_paths;
};

static void add_place(struct places *p, const char *directory, const char *below)
{
    char *path = p->paths[p->n_paths];
    if (snprintf(path, PATH_MAX, "%s%s/" PLUGIN_FILE, directory, below) < PATH_MAX)
        p->n_paths++;
}

/* In the order in which they are tried. */
static struct places find_places(void)
{
    struct places p = {.n_paths = 0};
    const char *wanted = getenv("TREFOIL_PLUGIN_DIR");
    char program[PATH_MAX];
    if (wanted && *wanted) {
        add_place(&p, wanted, "");
        return p;
    }
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n < 0)
        return p;
    program[n] = '\0';
    char *slash = strrchr(program, '/');
    if (!slash)
        return p;
    *slash = '\0';
    add_place(&p, program, "");
    add_place(&p, program, "/../lib/trefoil");
    return p;
}

/* The first place that has it, or NULL. */
static const char *find_plugin(const struct places *p)
{
    for (int i = 0; i < p->n_paths; i++)
        if (fs_exists(p->paths[i]))
            return p->paths[i];
    return NULL;
}

static int not_found(const struct places *p, struct error *err)
{
    const char *another = p->n_paths > 1 ? p->paths[1] : NULL;
    return error_set(err, ERROR_INPUT,
                     "device: gpu needs a plug-in that is not there: '%s'%s%s%s; `make "
                     "cuda` builds it where CUDA's nvcc is; " REMEDY,
                     p->n_paths > 0 ? p->paths[0] : PLUGIN_FILE, another ? ", nor '" : "",
                     another ? another : "", another ? "'" : "");
}

/* -- opening ------------------------------------------------------------------------- */

static int check_versions(const struct plugin *plugin, const char *path,
                          struct error *err)
{
    if (strcmp(plugin->version, TREFOIL_VERSION) != 0)
        return error_set(
            err, ERROR_INPUT,
            "the plug-in '%s' is of version %s, and this program of " TREFOIL_VERSION
            ": install both together, or build both again (make cuda); " REMEDY,
            path, plugin->version);
    if (plugin->abi() != plugin_abi())
        return error_set(
            err, ERROR_INPUT,
            "the plug-in '%s' was built from other sources than this program: "
            "build both again (make cuda); " REMEDY,
            path);
    return 0;
}

static int open_plugin(struct error *err)
{
    if (opened)
        return 0;
    struct places p = find_places();
    const char *path = find_plugin(&p);
    if (!path)
        return not_found(&p, err);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        return error_set(
            err, ERROR_INPUT,
            "cannot open the plug-in '%s': %s; the libraries of the CUDA that "
            "it was built with must be installed where the loader finds "
            "them; " REMEDY,
            path, why ? why : "the loader does not say why");
    }
    const struct plugin *plugin = dlsym(library, PLUGIN_SYMBOL);
    int rc = 0;
    if (!plugin)
        rc = error_set(err, ERROR_INPUT,
                       "'%s' is no plug-in of Trefoil: it has no symbol '" PLUGIN_SYMBOL
                       "'; build it again (make cuda); " REMEDY,
                       path);
    else
        rc = check_versions(plugin, path, err);
    if (rc)
        dlclose(library);
    else
        opened = plugin;
    return rc;
}

int plugin_open_gpu(struct device *dev, const struct device_request *r, struct error *err)
{
    return open_plugin(err) ? -1 : opened->open(dev, r, err);
}

int plugin_check_gpu(int n_local, enum dtype dtype, struct error *err)
{
    return open_plugin(err) ? -1 : opened->look(n_local, dtype, err);
}

void plugin_words(char *words, size_t size)
{
    struct places p = find_places();
    const char *path = find_plugin(&p);
    snprintf(words, size, "%s", path ? path : "none");
}
