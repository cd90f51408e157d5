/* UTF-8 (RFC 3629), sequence by sequence. Here as text and not in a file of its own code, because the scanner asks for every
 * character beyond ASCII. */
#ifndef MCP_VALET_UTF8_H
#define MCP_VALET_UTF8_H

#include "proxy/bytes.h"

/* The length of the well-formed sequence at the start of `bytes`, which are not empty; 0 if there is none. */
static inline size_t utf8_sequence(struct span bytes)
{
	const unsigned char *p = (const unsigned char *)bytes.ptr;
	if (p[0] < 0x80)
		return 1;
	if (bytes.len < 2 || p[0] < 0xC2 || (p[1] & 0xC0) != 0x80)
		return 0;
	if (p[0] < 0xE0)
		return 2;
	if (bytes.len < 3 || (p[2] & 0xC0) != 0x80)
		return 0;
	if (p[0] < 0xF0) {
		bool overlong = p[0] == 0xE0 && p[1] < 0xA0;
		bool surrogate = p[0] == 0xED && p[1] >= 0xA0;
		return overlong || surrogate ? 0 : 3;
	}
	if (bytes.len < 4 || (p[3] & 0xC0) != 0x80 || p[0] > 0xF4)
		return 0;
	bool overlong = p[0] == 0xF0 && p[1] < 0x90;
	bool too_high = p[0] == 0xF4 && p[1] >= 0x90;
	return overlong || too_high ? 0 : 4;
}

/* Whether that sequence, of `len` bytes, is nothing to look at, and may rule a terminal or disguise a line: controls beyond
 * ASCII, Unicode's line ends, overrides of direction. */
static inline bool utf8_is_unseen(struct span bytes, size_t len)
{
	const unsigned char *p = (const unsigned char *)bytes.ptr;
	if (len == 2)
		return p[0] == 0xC2 && p[1] < 0xA0; /* C1: U+0080 to U+009F */
	/* Line ends and overrides of direction: U+2028 to U+202E, U+2066 to U+2069. */
	return len == 3 && p[0] == 0xE2 &&
	       ((p[1] == 0x80 && p[2] >= 0xA8 && p[2] <= 0xAE) || (p[1] == 0x81 && p[2] >= 0xA6 && p[2] <= 0xA9));
}

#endif
