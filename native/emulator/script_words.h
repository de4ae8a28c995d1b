/* script_words.h: the small syntax inside a line of a script: words, quoted strings, escapes, comments. */

#ifndef EMULATOR_SCRIPT_WORDS_H
#define EMULATOR_SCRIPT_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "buffers.h"

char *words_trim(char *text);
char *words_split_first(char *line);
bool words_next(char **at, struct buf *word);
bool words_number(const char *text, double lowest, double highest, double *number);
void words_drop_comment(char *text);
void words_unescape(const char *text, size_t len, struct buf *out);
void words_push(char ***list, size_t *count, const char *word);
void words_free(char **list, size_t count);

#endif
