/* utf8.h: where characters begin and end in bytes that may be cut anywhere. */

#ifndef EMULATOR_UTF8_H
#define EMULATOR_UTF8_H

#include <stdbool.h>
#include <stddef.h>

size_t utf8_encode(unsigned code, char *out);
size_t utf8_width(const char *text, size_t len);
bool utf8_ends_inside_character(const char *text, size_t len);

#endif
