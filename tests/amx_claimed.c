/*
 * A processor with AVX-512 that says it has tiles as well: linked with amx_trap.c into
 * the program, which then computes with the unit's instructions wherever it would.
 * In place of processor_facts() by --wrap.
 */
#include "device/kernel_sets.h"

uint32_t __real_processor_facts(void);
uint32_t __wrap_processor_facts(void);

uint32_t __wrap_processor_facts(void)
{
    uint32_t facts = __real_processor_facts();
    if ((facts & KEEPS_512_BITS) != 0)
        facts |=
            HAS_AMX_TILE | HAS_AMX_BF16 | KEEPS_TILES | GRANTS_TILES | MULTIPLIES_TILES;
    return facts;
}
