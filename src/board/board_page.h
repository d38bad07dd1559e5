/*
 * board_page - the page inside the program: three files of src/board/page, packed when the
 * program is built.
 */
#ifndef BOARD_BOARD_PAGE_H
#define BOARD_BOARD_PAGE_H

#include "base/base.h"
#include "base/error.h"
#include "board/board_text.h"

struct board_page_file {
    const char *path; // as it is asked for
    const char *type;
    const unsigned char *packed, *packed_end; // gzip
};

/* NULL: none is at this path. */
const struct board_page_file *board_page_find(const char *path);

/* The file unpacked, appended to *out. */
MUST_CHECK int board_page_unpack(const struct board_page_file *file,
                                 struct board_text *out, struct error *err);

/* One HTML file that needs nothing else: the page with its style, its script and the JSON
 * text `data` inside. */
MUST_CHECK int board_page_save(const struct board_text *data, struct board_text *out,
                               struct error *err);

#endif
