/* script_words.c: see script_words.h. */

#include "script_words.h"

#include <stdlib.h>
#include <string.h>

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* Returns text without the spaces around it; cuts the end off in place. */
char *words_trim(char *text) {
    size_t len = strlen(text);
    while (len && is_space(text[len - 1])) text[--len] = 0;
    while (is_space(*text)) text++;
    return text;
}

/* Ends the first word of line in place and returns the trimmed rest ("" when none exists). */
char *words_split_first(char *line) {
    while (*line && !is_space(*line)) line++;
    if (*line) *line++ = 0;
    return words_trim(line);
}

/* Replaces the escapes \n \t \\ \" \$ \% in len bytes of text; any other backslash stays as it is.
 * \$ and \% keep their backslash here: it is what tells the answer that no placeholder is meant. */
void words_unescape(const char *text, size_t len, struct buf *out) {
    for (size_t i = 0; i < len; i++) {
        char c = text[i], next = i + 1 < len ? text[i + 1] : 0;
        if (c == '\\' && (next == 'n' || next == 't' || next == '"')) {
            buf_putc(out, next == 'n' ? '\n' : next == 't' ? '\t' : next);
            i++;
        } else if (c == '\\' && next == '\\') {
            /* Kept double before a placeholder sign, so that it is not taken for \$ later. */
            bool sign = i + 2 < len && (text[i + 2] == '$' || text[i + 2] == '%');
            buf_puts(out, sign ? "\\\\" : "\\");
            i++;
        } else {
            buf_putc(out, c);
        }
    }
}

/* Puts the next word of *at, or the inside of the next quoted string, into word and steps over it.
 * Returns false at the end of the line, at a comment (a word that begins with #) and at a quote that does not
 * end, where **at is then the quote. */
bool words_next(char **at, struct buf *word) {
    char *start = *at;
    buf_clear(word);
    while (is_space(*start)) start++;
    *at = start;
    if (!*start || *start == '#') {
        *at = start + strlen(start);
        return false;
    }
    char *end = start;
    if (*start != '"') {
        while (*end && !is_space(*end)) end++;
        buf_put(word, start, (size_t)(end - start));
        *at = end;
        return true;
    }
    for (end = start + 1; *end && *end != '"'; end++)
        if (*end == '\\' && end[1]) end++;
    if (!*end) return false;
    buf_put(word, "", 0);
    words_unescape(start + 1, (size_t)(end - start - 1), word);
    *at = end + 1;
    return true;
}

/* Reads text as a number within the bounds; false when it is anything else. */
bool words_number(const char *text, double lowest, double highest, double *number) {
    char *stop;
    *number = strtod(text, &stop);
    return *text && !*stop && *number >= lowest && *number <= highest;
}

/* Cuts off a comment that two spaces (or a tab) and "# " set apart from the text before it. */
void words_drop_comment(char *text) {
    for (char *hash = strchr(text, '#'); hash; hash = strchr(hash + 1, '#')) {
        bool apart = (hash - text >= 2 && is_space(hash[-1]) && is_space(hash[-2])) ||
                     (hash - text >= 1 && hash[-1] == '\t');
        if (!apart || (hash[1] && !is_space(hash[1]))) continue;
        *hash = 0;
        words_trim(text);
        return;
    }
}

/* Appends a copy of word to a list that words_free frees. */
void words_push(char ***list, size_t *count, const char *word) {
    *list = mem_grow(*list, (*count + 1) * sizeof **list);
    (*list)[(*count)++] = mem_string(word);
}

/* Frees a list of copies; NULL with count 0 is allowed. */
void words_free(char **list, size_t count) {
    for (size_t i = 0; i < count; i++) free(list[i]);
    free(list);
}
