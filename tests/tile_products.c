/* One product of tiles, for test_tiles.c: compiled for the unit, and for its twin. */
#include "device/cpu/cpu_tiles.h"

void TILE_PRODUCT(float *c, const uint16_t *a, const uint16_t *b, int rows, int n);

/* c (rows, 16) += a (rows, 32 n) b, by n products; b in n blocks of pairs. Tile 7 takes
 * part in nothing and has to stay as it is. */
void TILE_PRODUCT(float *c, const uint16_t *a, const uint16_t *b, int rows, int n)
{
    struct amx_tiles t;
    uint8_t r = (uint8_t)rows;
    amx_init(&t, (uint8_t[AMX_TILES]){r, r, 16, r, 16, 16, 16, r});
    amx_load(&t, 7, c, AMX_ROW_BYTES);
    amx_load(&t, 0, c, AMX_ROW_BYTES);
    amx_load(&t, 3, c, AMX_ROW_BYTES);
    amx_zero(&t, 3);
    for (int i = 0; i < n; i++) {
        amx_load(&t, 1, a + i * AMX_DEPTH, (int64_t)n * AMX_ROW_BYTES);
        amx_load(&t, 2, b + (ptrdiff_t)i * 16 * AMX_DEPTH, AMX_ROW_BYTES);
        amx_dot_bf16(&t, 0, 1, 2);
        amx_dot_bf16(&t, 3, 1, 2);
    }
    amx_store(&t, 7, c + 2 * 256, AMX_ROW_BYTES);
    amx_store(&t, 0, c, AMX_ROW_BYTES);
    amx_store(&t, 3, c + 256, AMX_ROW_BYTES);
    amx_release(&t);
}
