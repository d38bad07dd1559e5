/*
 * config_number - strict numbers: the whole text is a decimal number, or an error that
 * says what to write instead. Local to src/config.
 */
#ifndef CONFIG_CONFIG_NUMBER_H
#define CONFIG_CONFIG_NUMBER_H

#include "base/base.h"
#include "base/error.h"

/* [+-] digits, no leading zero; must fit into 64 bits. */
MUST_CHECK int config_parse_int(const char *text, int64_t *value, struct error *err);

/* Decimal digits with optional sign, point and exponent; finite. */
MUST_CHECK int config_parse_float(const char *text, double *value, struct error *err);

/* The shortest decimal text that reads back as exactly `value`. */
void config_format_float(double value, char *buf, size_t size);

#endif
