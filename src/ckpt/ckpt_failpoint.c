/* In a file of its own, so that a test program's definition replaces the whole of it. */
#include "ckpt/ckpt_failpoint.h"

__attribute__((weak)) int ckpt_failpoint(enum ckpt_failpoint at)
{
    (void)at;
    return 0;
}
