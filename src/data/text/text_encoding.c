#include "data/text/text_encoding.h"

#include <errno.h>
#include <iconv.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define RAW_BYTES 16384u
#define TEXT_BYTES (16 * RAW_BYTES) // no encoding grows by more
#define BOM "\xef\xbb\xbf"          // of UTF-8, what any other becomes

struct text_decoder {
    const char *encoding, *file;
    iconv_t iconv;
    bool is_begun;  // text was given out, or is known not to begin with a mark
    int64_t n_raw;  // bytes of the text that were put in
    size_t n_held;  // of them, not yet converted: the beginning of a character
    size_t at, end; // of `text`, not yet given out
    char raw[RAW_BYTES];
    char text[TEXT_BYTES];
};

enum text_encoding_kind text_encoding_kind_of(const char *encoding)
{
    if (!encoding || strcasecmp(encoding, "UTF-8") == 0 ||
        strcasecmp(encoding, "UTF8") == 0)
        return TEXT_IS_UTF8;
    return strcmp(encoding, TEXT_ENCODING_BYTES) == 0 ? TEXT_IS_BYTES : TEXT_IS_CONVERTED;
}

/* A slash begins iconv's own options, such as leaving out what it cannot convert. */
static iconv_t open_iconv(const char *encoding)
{
    errno = EINVAL;
    return strchr(encoding, '/') || !encoding[0] ? (iconv_t)-1
                                                 : iconv_open("UTF-8", encoding);
}

int text_encoding_check(const char *encoding, struct error *err)
{
    if (text_encoding_kind_of(encoding) != TEXT_IS_CONVERTED)
        return 0;
    iconv_t opened = open_iconv(encoding);
    if (opened == (iconv_t)-1)
        return error_set(err, errno == EINVAL ? ERROR_INPUT : ERROR_RUNTIME,
                         "the encoding '%.60s' is not known to this system (%s); `iconv "
                         "--list` shows those that are, and " TEXT_ENCODING_BYTES
                         " takes the bytes of a file as they are",
                         encoding, strerror(errno));
    iconv_close(opened);
    return 0;
}

int text_decoder_open(struct text_decoder **out, const char *encoding, const char *file,
                      struct error *err)
{
    *out = NULL;
    if (text_encoding_check(encoding, err))
        return -1;
    struct text_decoder *d = malloc(sizeof *d);
    iconv_t opened = d ? open_iconv(encoding) : (iconv_t)-1;
    if (opened == (iconv_t)-1) {
        free(d);
        return error_set(err, ERROR_RUNTIME, "out of memory to convert '%s'", file);
    }
    d->encoding = encoding;
    d->file = file;
    d->iconv = opened;
    d->is_begun = false;
    d->n_raw = 0;
    d->n_held = d->at = d->end = 0;
    *out = d;
    return 0;
}

void text_decoder_close(struct text_decoder *d)
{
    if (!d)
        return;
    iconv_close(d->iconv);
    free(d);
}

char *text_decoder_room(struct text_decoder *d, size_t *size)
{
    *size = RAW_BYTES - d->n_held;
    return d->raw + d->n_held;
}

/* A mark of the order of bytes is not part of the text. */
static void drop_mark(struct text_decoder *d)
{
    if (d->end - d->at >= strlen(BOM) && memcmp(d->text + d->at, BOM, strlen(BOM)) == 0)
        d->at += strlen(BOM);
}

static int finish(struct text_decoder *d, char *to, size_t room, struct error *err)
{
    if (d->n_held > 0)
        return error_set(err, ERROR_INPUT,
                         "'%s' ends after %lld bytes of text in the middle of a "
                         "character of %s",
                         d->file, (long long)d->n_raw, d->encoding);
    iconv(d->iconv, NULL, NULL, &to, &room); // what the last character held back
    d->end = (size_t)(to - d->text);
    return 0;
}

int text_decoder_take(struct text_decoder *d, size_t n, struct error *err)
{
    char *from = d->raw, *to = d->text;
    size_t left = d->n_held + n, room = TEXT_BYTES;
    d->n_raw += (int64_t)n;
    d->at = d->end = 0;
    if (n == 0)
        return finish(d, to, room, err);
    // room is enough for all, so what is left over is a beginning or a mistake
    if (iconv(d->iconv, &from, &left, &to, &room) == (size_t)-1 && errno != EINVAL)
        return error_set(err, ERROR_INPUT,
                         "'%s': byte %lld of its text begins no character of %s; is it "
                         "in another encoding, or damaged?",
                         d->file, (long long)(d->n_raw - (int64_t)left), d->encoding);
    d->n_held = left;
    memmove(d->raw, from, left);
    d->end = (size_t)(to - d->text);
    if (!d->is_begun && d->end > 0) {
        drop_mark(d);
        d->is_begun = true;
    }
    return 0;
}

size_t text_decoder_give(struct text_decoder *d, char *buf, size_t size)
{
    size_t n = d->end - d->at < size ? d->end - d->at : size;
    memcpy(buf, d->text + d->at, n);
    d->at += n;
    return n;
}
