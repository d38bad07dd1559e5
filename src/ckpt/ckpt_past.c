#include "ckpt/ckpt_past.h"

#include "ckpt/ckpt_find.h"

#include <string.h>

int ckpt_past(const char *ckpt_dir, struct config_past *past, struct error *err)
{
    struct ckpt_info info;
    struct error why;
    *past = (struct config_past){.config_json = NULL};
    if (ckpt_find_info(ckpt_dir, &info, past->path, &why)) {
        if (why.kind == ERROR_INPUT)
            return 0;
        *err = why; // another process might be able to read it
        return -1;
    }
    past->config_json = info.config_json;
    past->is_imported = info.progress.step == 0;
    info.config_json = NULL;
    ckpt_info_release(&info);
    return 0;
}
