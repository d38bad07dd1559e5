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

char *text_decoder_buffer(struct text_decoder *d, size_t *size)
{
    *size = RAW_BYTES - d->n_held;
    return d->raw + d->n_held;
}

static int end_text(struct text_decoder *d, char *to, size_t space, struct error *err)
{
    if (d->n_held > 0)
        return error_set(err, ERROR_INPUT,
                         "'%s' ends after %lld bytes of text in the middle of a "
                         "character of %s",
                         d->file, (long long)d->n_raw, d->encoding);
    iconv(d->iconv, NULL, NULL, &to, &space); // what the last character held back
    d->end = (size_t)(to - d->text);
    return 0;
}

int text_decoder_put(struct text_decoder *d, size_t n, struct error *err)
{
    char *from = d->raw, *to = d->text;
    size_t left = d->n_held + n, space = TEXT_BYTES;
    d->n_raw += (int64_t)n;
    d->at = d->end = 0;
    if (n == 0)
        return end_text(d, to, space, err);
    // there is space for all, so what is left over is a beginning or a mistake
    if (iconv(d->iconv, &from, &left, &to, &space) == (size_t)-1 && errno != EINVAL)
        return error_set(err, ERROR_INPUT,
                         "'%s': byte %lld of its text begins no character of %s; is it "
                         "in another encoding, or damaged?",
                         d->file, (long long)(d->n_raw - (int64_t)left), d->encoding);
    d->n_held = left;
    memmove(d->raw, from, left);
    d->end = (size_t)(to - d->text);
    // a mark of the order of bytes is not part of the text
    if (!d->is_begun && d->end >= strlen(BOM) && memcmp(d->text, BOM, strlen(BOM)) == 0)
        d->at = strlen(BOM);
    d->is_begun = d->is_begun || d->end > 0;
    return 0;
}

size_t text_decoder_get(struct text_decoder *d, char *buf, size_t size)
{
    size_t n = d->end - d->at < size ? d->end - d->at : size;
    memcpy(buf, d->text + d->at, n);
    d->at += n;
    return n;
}

/* -- what else a file is ------------------------------------------------------------- */

/*
 * An encoding is recognised by what its common characters make of the bytes: kana in
 * Japanese, the first level of hanzi in Chinese, lower case in Cyrillic. Shares of a
 * whole window are compared with limits that lie well between what the languages have.
 */
#define UNPACK "; unpack it first"
#define AS_TEXT "; take its text out first"

static const struct file_mark {
    const char *mark;
    size_t n_mark, offset;
    bool is_weak; // a text could begin with it
    const char *what;
} file_marks[] = {
    // clang-format off
    {"1AY&SY", 6, 4, false, "packed by bzip2" UNPACK},
    {"\xfd" "7zXZ", 5, 0, false, "packed by xz" UNPACK},
    {"\x04\x22\x4d\x18", 4, 0, false, "packed by lz4" UNPACK},
    {"\x1f\x9d", 2, 0, false, "packed by compress" UNPACK},
    {"LZIP", 4, 0, true, "packed by lzip" UNPACK},
    {"PK\x03\x04", 4, 0, false, "a zip archive (or made of one, as docx, xlsx, epub and PyTorch files are)" UNPACK},
    {"7z\xbc\xaf\x27\x1c", 6, 0, false, "a 7z archive" UNPACK},
    {"Rar!\x1a\x07", 6, 0, false, "a rar archive" UNPACK},
    {"ustar", 5, 257, true, "a tar archive" UNPACK},
    {"!<arch>\n", 8, 0, false, "an ar archive" UNPACK},
    {"%PDF-1", 6, 0, false, "a PDF document" AS_TEXT ", for example with pdftotext"},
    {"%PDF-2", 6, 0, false, "a PDF document" AS_TEXT ", for example with pdftotext"},
    {"PAR1", 4, 0, false, "a Parquet file" AS_TEXT ", for example as JSON lines with pyarrow or duckdb"},
    {"PARE", 4, 0, true, "an encrypted Parquet file" AS_TEXT},
    {"ARROW1", 6, 0, true, "an Arrow file" AS_TEXT ", for example as JSON lines with pyarrow"},
    {"\xff\xff\xff\xff", 4, 0, false, "an Arrow stream or another binary file" AS_TEXT ", for example as JSON lines with pyarrow"},
    {"Obj\x01", 4, 0, false, "an Avro file" AS_TEXT ", for example as JSON lines"},
    {"ORC", 3, 0, true, "an ORC file" AS_TEXT ", for example as JSON lines with pyarrow"},
    {"\x89HDF\r\n\x1a\n", 8, 0, false, "an HDF5 file" AS_TEXT},
    {"SQLite format 3", 16, 0, false, "an SQLite database" AS_TEXT},
    {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 8, 0, false, "an old Office document (doc, xls, ppt)" AS_TEXT},
    {"{\\rtf", 5, 0, false, "an RTF document" AS_TEXT},
    {"AT&TFORM", 8, 0, true, "a DjVu document" AS_TEXT ", for example with djvutxt"},
    {"BOOKMOBI", 8, 60, true, "a Mobipocket book" AS_TEXT},
    {"%!PS", 4, 0, true, "a PostScript document" AS_TEXT ", for example with ps2ascii"},
    {"\x93NUMPY", 6, 0, false, "a numpy array, not text; name the text files"},
    {"MMIDIDX", 7, 0, true, "an index of token files, not text; name the text files"},
    {"GGUF", 4, 0, true, "a GGUF model, not text; name the text files"},
    {"\x80\x02", 2, 0, true, "a Python pickle, not text; name the text files"},
    {"\x80\x03", 2, 0, true, "a Python pickle, not text; name the text files"},
    {"\x80\x04", 2, 0, true, "a Python pickle, not text; name the text files"},
    {"\x80\x05", 2, 0, true, "a Python pickle, not text; name the text files"},
    {"\0\0\0\0{\"", 6, 4, true, "a safetensors file, not text; name the text files"},
    {"\x7f" "ELF", 4, 0, false, "a program (ELF), not text; name the text files"},
    {"MZ", 2, 0, true, "a Windows program, not text; name the text files"},
    {"\xca\xfe\xba\xbe", 4, 0, false, "a Java class or macOS program, not text; name the text files"},
    {"\x89PNG\r\n\x1a\n", 8, 0, false, "a PNG picture, not text; name the text files"},
    {"\xff\xd8\xff", 3, 0, false, "a JPEG picture, not text; name the text files"},
    {"GIF8", 4, 0, true, "a GIF picture, not text; name the text files"},
    {"BM", 2, 0, true, "a BMP picture, not text; name the text files"},
    {"II*", 4, 0, false, "a TIFF picture, not text; name the text files"},
    {"MM\0*", 4, 0, false, "a TIFF picture, not text; name the text files"},
    {"RIFF", 4, 0, true, "sound, film or a picture (RIFF), not text; name the text files"},
    {"OggS", 4, 0, true, "sound or film (Ogg), not text; name the text files"},
    {"fLaC", 4, 0, true, "sound (FLAC), not text; name the text files"},
    {"ID3", 3, 0, true, "sound (MP3), not text; name the text files"},
    {"ftyp", 4, 4, true, "film or sound (MP4), not text; name the text files"},
    {"\x1a\x45\xdf\xa3", 4, 0, false, "film (Matroska), not text; name the text files"},
    // clang-format on
};

const char *text_guess_file(const char *start, size_t n, bool is_text)
{
    for (size_t i = 0; i < ARRAY_LEN(file_marks); i++) {
        const struct file_mark *m = &file_marks[i];
        if (!(m->is_weak && is_text) && n >= m->offset + m->n_mark &&
            memcmp(start + m->offset, m->mark, m->n_mark) == 0)
            return m->what;
    }
    return NULL;
}

/* -- UTF-16 and UTF-32 --------------------------------------------------------------- */

static const char *guess_by_mark(const char *bytes, size_t n)
{
    static const struct {
        const char *mark;
        size_t n_mark;
        const char *name;
    } marks[] = {
        {"\xff\xfe\0\0", 4, "UTF-32LE"},
        {"\0\0\xfe\xff", 4, "UTF-32BE"},
        {"\xff\xfe", 2, "UTF-16LE"},
        {"\xfe\xff", 2, "UTF-16BE"},
    };
    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        if (n >= marks[i].n_mark && memcmp(bytes, marks[i].mark, marks[i].n_mark) == 0)
            return marks[i].name;
    return NULL;
}

/* Is the high half of a 16-bit unit one that texts of the larger languages have? */
static bool is_usual_high(uint8_t high)
{
    return (high >= 0x01 && high <= 0x06) || (high >= 0x09 && high <= 0x0E) ||
           high == 0x1E || (high >= 0x20 && high <= 0x23) ||
           (high >= 0x30 && high <= 0x33) || (high >= 0x4E && high <= 0x9F) ||
           (high >= 0xAC && high <= 0xDF) || high == 0xFF;
}

static bool is_usual_latin(uint8_t low)
{
    return (low >= 0x20 && low != 0x7F) || (low >= '\t' && low <= '\r');
}

/* Units of 16 bits whose high half is byte `high_at` of two. */
static bool is_utf16(const uint8_t *b, size_t n, size_t high_at)
{
    size_t n_units = n / 2, n_latin = 0, n_usual = 0, n_low_nul = 0;
    for (size_t i = 0; i < n_units; i++) {
        uint8_t high = b[2 * i + high_at], low = b[2 * i + 1 - high_at];
        n_latin += high == 0 && is_usual_latin(low);
        n_usual += is_usual_high(high);
        n_low_nul += low == 0;
    }
    return n_latin >= 2 && n_latin * 200 >= n_units && n_low_nul * 10 <= n_units &&
           (n_latin + n_usual) * 100 >= 95 * n_units;
}

/* Characters of 32 bits, least byte first or last: none is above 0x10FFFF. */
static bool is_utf32(const uint8_t *b, size_t n, bool is_little)
{
    size_t n_chars = n / 4;
    for (size_t i = 0; i < n_chars; i++) {
        const uint8_t *c = b + 4 * i;
        if ((is_little ? c[3] : c[0]) != 0 || (is_little ? c[2] : c[1]) > 0x10 ||
            ((is_little ? c[1] : c[2]) == 0 && (is_little ? c[0] : c[3]) == 0))
            return false;
    }
    return n_chars >= 2;
}

static const char *guess_wide(const char *bytes, size_t n)
{
    const uint8_t *b = (const uint8_t *)bytes;
    if (!memchr(bytes, 0, n))
        return NULL;
    if (is_utf32(b, n, true))
        return "UTF-32LE";
    if (is_utf32(b, n, false))
        return "UTF-32BE";
    if (is_utf16(b, n, 1))
        return "UTF-16LE";
    return is_utf16(b, n, 0) ? "UTF-16BE" : NULL;
}

/* -- one byte per character ---------------------------------------------------------- */

struct high_bytes { // those over 0x7F, and their runs
    size_t n, n_runs, n_short_runs;
    size_t n_letters; // 0xC0 to 0xFF
    size_t n_late;    // 0xE0 to 0xFF
};

static struct high_bytes count_high(const uint8_t *b, size_t n)
{
    struct high_bytes h = {0};
    for (size_t i = 0; i < n; i++) {
        if (b[i] < 0x80)
            continue;
        bool begins = i == 0 || b[i - 1] < 0x80, ends = i + 1 == n || b[i + 1] < 0x80;
        h.n++;
        h.n_runs += begins;
        h.n_short_runs += begins && ends;
        h.n_letters += b[i] >= 0xC0;
        h.n_late += b[i] >= 0xE0;
    }
    return h;
}

static const char *guess_narrow(const uint8_t *b, size_t n)
{
    struct high_bytes h = count_high(b, n);
    if (h.n * 4 < n && h.n_short_runs * 10 >= 8 * h.n_runs)
        return "WINDOWS-1252"; // letters with accents among others
    if (h.n < 6 || h.n_letters * 100 < 95 * h.n || h.n < 2 * h.n_runs)
        return NULL;
    return h.n_late * 2 >= h.n ? "WINDOWS-1251" : "KOI8-R"; // where lower case is
}

/* -- two bytes per character --------------------------------------------------------- */

struct pairs {             // of a first byte over 0x80 and a second one
    size_t n, n_odd;       // and what is none
    size_t n_low;          // second byte below 0x80
    size_t lead[256];      // how many have this first byte
    size_t lead_high[256]; // and a second one over 0xA0
    size_t n_four;         // characters of four bytes, as GB18030 has them
};

static bool is_digit(uint8_t b)
{
    return b >= '0' && b <= '9';
}

static void count_pairs(struct pairs *p, const uint8_t *b, size_t n)
{
    *p = (struct pairs){0};
    for (size_t i = 0; i + 1 < n; i++) {
        if (b[i] < 0x80)
            continue;
        uint8_t trail = b[i + 1];
        if (i + 3 < n && is_digit(trail) && b[i + 2] > 0x80 && is_digit(b[i + 3])) {
            p->n_four++;
            i += 3;
        } else if (b[i] == 0x80 || b[i] == 0xFF || trail < 0x40 || trail == 0x7F ||
                   trail == 0xFF) {
            p->n_odd++;
        } else {
            p->n++;
            p->n_low += trail < 0x80;
            p->lead[b[i]]++;
            p->lead_high[b[i]] += trail > 0xA0;
            i++;
        }
    }
}

static size_t sum_counts(const size_t *counts, int first, int last)
{
    size_t total = 0;
    for (int i = first; i <= last; i++)
        total += counts[i];
    return total;
}

static const char *guess_pairs(const uint8_t *b, size_t n)
{
    struct pairs p;
    count_pairs(&p, b, n);
    if (p.n + p.n_four == 0 || p.n_odd * 50 > p.n + p.n_four)
        return NULL;
    if (p.n_four > 0)
        return "GB18030";
    size_t n_high = sum_counts(p.lead_high, 0xA1, 0xFE);
    if ((p.lead[0x82] + p.lead[0x83]) * 4 >= p.n)
        return "SHIFT_JIS"; // kana
    if ((p.lead_high[0xA4] + p.lead_high[0xA5]) * 4 >= p.n && n_high == p.n)
        return "EUC-JP"; // kana
    if ((sum_counts(p.lead, 0xA4, 0xC6) + p.lead[0xA1]) * 10 >= 8 * p.n &&
        p.n_low * 10 >= p.n)
        return "BIG5"; // the first level, and second bytes that are ASCII
    if (sum_counts(p.lead_high, 0xB0, 0xC8) * 10 >= 8 * p.n &&
        sum_counts(p.lead_high, 0xC9, 0xD7) * 20 <= p.n)
        return "EUC-KR"; // hangul
    if ((sum_counts(p.lead_high, 0xB0, 0xD7) + p.lead_high[0xA1] + p.lead_high[0xA3]) *
            10 >=
        6 * p.n)
        return "GBK"; // the first level
    return NULL;
}

const char *text_guess_encoding(const char *bytes, size_t n)
{
    const uint8_t *b = (const uint8_t *)bytes;
    const char *name = guess_by_mark(bytes, n);
    if (!name)
        name = guess_wide(bytes, n);
    if (name || n == 0 || memchr(bytes, 0, n))
        return name;
    name = guess_narrow(b, n);
    return name ? name : guess_pairs(b, n);
}

/* -- ASCII with switches ------------------------------------------------------------- */

const char *text_guess_switching(const char *bytes, size_t n, size_t *at)
{
    static const struct {
        const char *mark, *name;
    } switches[] = {
        {"\x1b$B", "ISO-2022-JP"},
        {"\x1b$@", "ISO-2022-JP"},
        {"\x1b$)C", "ISO-2022-KR"},
        {"\x1b$)A", "ISO-2022-CN"},
    };
    const char *found = NULL, *name = NULL;
    if (!memchr(bytes, 0x1b, n))
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(switches); i++) {
        const char *mark = memmem(bytes, n, switches[i].mark, strlen(switches[i].mark));
        if (mark && (!found || mark < found)) {
            found = mark;
            name = switches[i].name;
        }
    }
    *at = found ? (size_t)(found - bytes) : 0;
    return name;
}
