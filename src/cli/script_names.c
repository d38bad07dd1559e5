#include "cli/script_names.h"

#include "base/base.h"

#include <string.h>

const char *command_of_script(const char *word)
{
    static const char *const scripts[] = {"run_pretrain.py", "train.py"};
    const char *slash = word ? strrchr(word, '/') : NULL;
    const char *name = slash ? slash + 1 : word;
    for (size_t i = 0; word && i < ARRAY_LEN(scripts); i++)
        if (strcmp(name, scripts[i]) == 0)
            return "pretrain";
    return word;
}
