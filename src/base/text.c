#include "base/text.h"

#include <ctype.h>
#include <string.h>

int text_distance(const char *a, const char *b)
{
    int row[TEXT_DISTANCE_MOST + 1]; // distances of the prefix of a to prefixes of b
    int n_a = (int)strlen(a), n_b = (int)strlen(b);
    if (n_a >= TEXT_DISTANCE_MOST || n_b >= TEXT_DISTANCE_MOST)
        return TEXT_DISTANCE_MOST;
    for (int j = 0; j <= n_b; j++)
        row[j] = j;
    for (int i = 1; i <= n_a; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n_b; j++) {
            bool is_same =
                tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            int best = diagonal + !is_same;
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[n_b];
}

bool text_ends_with(const char *text, const char *suffix)
{
    size_t n = strlen(text), k = strlen(suffix);
    return n >= k && strcmp(text + n - k, suffix) == 0;
}
