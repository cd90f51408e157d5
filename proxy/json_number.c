/* Numbers of JSON: as spelled they have no limits, and who passes them on reads them as doubles. */
#include "proxy/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NUMBER = 400 }; /* bytes; no double has more digits before its point */

static const double first_inexact = 9007199254740992; /* 2^53: from here on some whole numbers are no doubles */

double json_number(struct span value)
{
	char copy[MAX_NUMBER], *end;
	if (!value.len || value.len >= sizeof(copy) || json_type(value) != JSON_NUMBER)
		return NAN;
	memcpy(copy, value.ptr, value.len);
	copy[value.len] = '\0';
	double number = strtod(copy, &end);
	return end == copy + value.len ? number : NAN;
}

static bool digits(struct span value, int64_t *out)
{
	size_t i = value.len && *value.ptr == '-' ? 1 : 0;
	bool negative = i == 1;
	int64_t number = 0;
	if (i == value.len)
		return false;
	/* Counted downwards, because the lowest number has no positive twin. */
	for (; i < value.len; i++) {
		if (value.ptr[i] < '0' || value.ptr[i] > '9' || __builtin_mul_overflow(number, 10, &number) ||
			__builtin_sub_overflow(number, value.ptr[i] - '0', &number))
			return false;
	}
	if (!negative && number == INT64_MIN)
		return false;
	*out = negative ? number : -number;
	return true;
}

bool json_is_whole(struct span value)
{
	int64_t whole;
	if (digits(value, &whole))
		return true;
	double number = json_number(value);
	return isfinite(number) && (fabs(number) >= first_inexact || number == (double)(int64_t)number);
}

bool json_integer(struct span value, int64_t *out)
{
	if (digits(value, out))
		return true;
	double number = json_number(value);
	if (!(fabs(number) < first_inexact) || number != (double)(int64_t)number)
		return false;
	*out = (int64_t)number;
	return true;
}

static bool has_digits_only(struct span value)
{
	for (size_t i = *value.ptr == '-'; i < value.len; i++)
		if (value.ptr[i] < '0' || value.ptr[i] > '9')
			return false;
	return true;
}

bool json_same_number(struct span one, struct span other)
{
	double number = json_number(one);
	if (number != json_number(other)) /* not-a-number equals nothing */
		return false;
	/* There are no zeros in front: spelled differently, only 0 and -0 are the same. */
	return !has_digits_only(one) || !has_digits_only(other) || number == 0 || span_equal(one, other);
}
