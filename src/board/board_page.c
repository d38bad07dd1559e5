#include "board/board_page.h"

#include <string.h>
#include <zlib.h>

#define PIECE_BYTES 16384
#define GZIP_WINDOW (15 + 16) // of zlib: with gzip's head

/* The lines of board.html that a saved page has its own text for. */
#define STYLE_LINE "<link rel=\"stylesheet\" href=\"board.css\">"
#define SCRIPT_LINE "<script src=\"board.js\" defer></script>"

/* BOARD_PAGE_DIR holds the packed files; CMakeLists.txt makes them. */
#define EMBED(symbol, name)                                                              \
    __asm__(".pushsection .rodata\n" #symbol ":\n"                                       \
            ".incbin \"" BOARD_PAGE_DIR "/" name "\"\n" #symbol "_end:\n"                \
            ".byte 0\n"                                                                  \
            ".popsection\n");                                                            \
    extern const unsigned char(symbol)[], (symbol##_end)[]

EMBED(board_packed_html, "board.html.gz");
EMBED(board_packed_css, "board.css.gz");
EMBED(board_packed_js, "board.js.gz");

const struct board_page_file *board_page_find(const char *path)
{
    static const struct board_page_file files[] = {
        {"/", "text/html; charset=utf-8", board_packed_html, board_packed_html_end},
        {"/board.css", "text/css; charset=utf-8", board_packed_css, board_packed_css_end},
        {"/board.js", "text/javascript; charset=utf-8", board_packed_js,
         board_packed_js_end},
    };
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (strcmp(files[i].path, path) == 0)
            return &files[i];
    return NULL;
}

int board_page_unpack(const struct board_page_file *file, struct board_text *out,
                      struct error *err)
{
    unsigned char piece[PIECE_BYTES];
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)file->packed,
                  .avail_in = (unsigned)(file->packed_end - file->packed)};
    int rc = inflateInit2(&z, GZIP_WINDOW);
    while (rc == Z_OK) {
        z.next_out = piece;
        z.avail_out = sizeof piece;
        rc = inflate(&z, Z_NO_FLUSH);
        board_text_add(out, (const char *)piece, sizeof piece - z.avail_out);
    }
    inflateEnd(&z);
    if (rc == Z_STREAM_END && !out->is_broken)
        return 0;
    return error_set(err, ERROR_RUNTIME, "out of memory for the page");
}

/* -- saving -------------------------------------------------------------------------- */

static void put_file(struct board_text *out, const char *path, struct error *err)
{
    if (board_page_unpack(board_page_find(path), out, err))
        out->is_broken = true;
}

/* The text up to `line` goes to *out; what follows it, or NULL without such a line. */
static const char *put_until(struct board_text *out, const char *text, const char *line)
{
    const char *at = strstr(text, line);
    if (!at)
        return NULL;
    board_text_add(out, text, (size_t)(at - text));
    return at + strlen(line);
}

int board_page_save(const struct board_text *data, struct board_text *out,
                    struct error *err)
{
    struct board_text page = {0};
    const char *rest;
    int rc = -1;
    if (board_page_unpack(board_page_find("/"), &page, err))
        goto done;
    board_text_add(&page, "", 1); // terminated
    rest = page.is_broken ? NULL : put_until(out, page.bytes, STYLE_LINE);
    if (rest) {
        // a saved page asks nobody for anything, and the browser holds it to that
        board_text_put(out, "<meta http-equiv=\"Content-Security-Policy\" content=\""
                            "default-src 'none'; script-src 'unsafe-inline'; "
                            "style-src 'unsafe-inline'; img-src data:\">\n<style>\n");
        put_file(out, "/board.css", err);
        board_text_put(out, "</style>");
        rest = put_until(out, rest, SCRIPT_LINE);
    }
    if (rest) {
        board_text_put(out, "<script type=\"application/json\" id=\"saved\">");
        board_text_add(out, data->bytes, (size_t)data->n);
        board_text_put(out, "</script>\n<script>\n");
        put_file(out, "/board.js", err);
        board_text_put(out, "</script>");
        board_text_put(out, rest);
    }
    CHECK(rest || page.is_broken, "board.html lacks the line of its style or script");
    rc = out->is_broken || data->is_broken ? -1 : 0;
    if (rc)
        error_set(err, ERROR_RUNTIME, "out of memory for the page");
done:
    board_text_release(&page);
    return rc;
}
