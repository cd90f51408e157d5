/* One error space for the whole program. A function that can fail returns 0 or one of these codes (or a pointer or
 * NULL), and fills a struct error with words for people where people will read them. */
#ifndef MCP_VALET_ERROR_H
#define MCP_VALET_ERROR_H

#include "proxy/compiler.h"

enum error_code {
	ERROR_NONE = 0,
	ERROR_MEMORY = -1,  /* out of memory */
	ERROR_SYNTAX = -2,  /* the input is not what its grammar says */
	ERROR_LIMIT = -3,   /* a limit of the policy was reached */
	ERROR_SYSTEM = -4,  /* the operating system said no */
	ERROR_REFUSED = -5, /* understood and not allowed */
	ERROR_LOST = -6,    /* the peer is gone */
};

struct error {
	enum error_code code;
	char text[512];
};

/* Fills *error (which may be NULL) with the code and a formatted text, cut to fit. Returns the code, so that a failing
 * function can end with `return error_set(...)`. */
int error_set(struct error *error, enum error_code code, const char *format, ...) PRINTF_LIKE(3, 4);

#endif
