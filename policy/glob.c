#include "policy/rules.h"

#include <string.h>

bool glob_matches(const char *pattern, const char *name)
{
	const char *star = NULL, *resume = NULL;
	while (*name) {
		if (*pattern == '*') {
			star = pattern++;
			resume = name;
		} else if (*pattern == '?' || *pattern == *name) {
			pattern++;
			name++;
		} else if (star) {
			pattern = star + 1;
			name = ++resume;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return *pattern == '\0';
}

enum { MAX_PATTERN = 256 };

/* Walks both patterns at once: place (i, j) is reached when some text leads to it in both. A row of places for each i. */
bool globs_overlap(const char *a, const char *b)
{
	size_t a_len = strlen(a), b_len = strlen(b);
	bool reached[2][MAX_PATTERN + 1];
	if (a_len > MAX_PATTERN || b_len > MAX_PATTERN)
		return true; /* such patterns are refused elsewhere */
	memset(reached, 0, sizeof(reached));
	reached[0][0] = true;
	for (size_t i = 0; i <= a_len; i++) {
		bool *row = reached[i & 1], *below = reached[(i + 1) & 1];
		memset(below, 0, sizeof(reached[0]));
		for (size_t j = 0; j <= b_len; j++) {
			if (!row[j])
				continue;
			bool a_star = a[i] == '*', b_star = b[j] == '*';
			if (i == a_len && j == b_len)
				return true;
			if (a_star)
				below[j] = true; /* the star ends here */
			if (b_star && j < b_len)
				row[j + 1] = true;
			if (a_star && j < b_len)
				row[j + 1] = true; /* the star takes what b says here */
			if (b_star && i < a_len)
				below[j] = true;
			if (i < a_len && j < b_len && !a_star && !b_star &&
				(a[i] == b[j] || a[i] == '?' || b[j] == '?'))
				below[j + 1] = true;
		}
	}
	return false;
}
