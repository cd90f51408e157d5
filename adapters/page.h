/* What the pages of HTML have in common: their look, and a policy that allows a browser this look and nothing else. */
#ifndef MCP_VALET_PAGE_H
#define MCP_VALET_PAGE_H

#include "proxy/bytes.h"

/* Appends everything up to <main>, with it. `in_page`: the page is to be a file, so it brings its Content-Security-Policy
 * itself. */
void page_begin(struct buf *out, const char *title, bool in_page);
void page_end(struct buf *out);
/* Appends the value of the Content-Security-Policy: nothing but the style sheet that the page brings. */
void page_write_policy(struct buf *out);

/* Appends text of anybody's, as text. */
void page_add_text(struct buf *out, const char *text);

/* `columns` are separated by `|`. */
void page_begin_table(struct buf *out, const char *id, const char *title, const char *columns);
void page_end_table(struct buf *out);
void page_add_cell(struct buf *out, const char *text);
void page_add_number(struct buf *out, uint64_t number);
void page_add_time(struct buf *out, int64_t time_ms);

#endif
