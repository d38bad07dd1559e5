#include "ckpt/keep_tokenizer.h"

#include "base/fs.h"
#include "base/log.h"
#include "token/tokenizer.h"

#include <limits.h>

int ckpt_keep_tokenizer(const char *output_dir, const char *name, struct error *err)
{
    char dir[PATH_MAX];
    struct tokenizer *tokenizer = NULL;
    int rc = -1;
    if (tokenizer_open(&tokenizer, name, err) ||
        fs_join(dir, sizeof dir, output_dir, CKPT_TOKENIZER_DIR, err) ||
        fs_make_directories(dir, err) || tokenizer_save(tokenizer, dir, err))
        goto done;
    log_info("tokenizer: '%s'", dir);
    rc = 0;
done:
    tokenizer_close(tokenizer);
    return rc;
}
