#include "data/byte_tokenizer.h"

void byte_tokenizer_encode(const char *text, size_t n, int32_t *tokens)
{
    for (size_t i = 0; i < n; i++)
        tokens[i] = (unsigned char)text[i];
}

size_t byte_tokenizer_decode(const int32_t *tokens, int64_t n, char *text)
{
    size_t n_bytes = 0;
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] >= 0 && tokens[i] <= UINT8_MAX)
            text[n_bytes++] = (char)(unsigned char)tokens[i];
    return n_bytes;
}
