#include "device/cuda/cuda_blas.h"

#include "device/cuda/cuda_internal.h"

#include <dlfcn.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
/* Of the version whose header this was compiled with. */
#define LIBRARY "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

int cuda_blas_open(struct cuda_blas *blas, struct error *err)
{
#define NAME_AND_PLACE(name) {#name, (void **)&blas->name},
    const struct {
        const char *name;
        void **place;
    } functions[] = {CUDA_BLAS_FUNCTIONS(NAME_AND_PLACE)};
    // the plug-in says where to look: the loader's places, beside it, and its toolkit
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    bool is_whole = library != NULL;
    for (size_t i = 0; is_whole && i < ARRAY_LEN(functions); i++) {
        *functions[i].place = dlsym(library, functions[i].name);
        is_whole = *functions[i].place != NULL;
    }
    if (is_whole)
        return 0;
    const char *why = dlerror();
    error_set(
        err, ERROR_INPUT,
        "device: gpu needs cuBLASLt of CUDA " TEXT(
            CUBLAS_VER_MAJOR) ": %s; install "
                              "it where the loader finds it (LD_LIBRARY_PATH), or build "
                              "the plug-in with "
                              "the CUDA that is installed (make cuda); " CUDA_REMEDY,
        why ? why : "cannot open " LIBRARY);
    if (library)
        dlclose(library);
    return -1;
}
