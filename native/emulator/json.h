/* json.h: a small JSON reader, and the two writers the emulator needs.
 *
 * A document owns all its nodes and strings; they die together in json_free. Numbers are doubles, strings are
 * UTF-8 with their escapes resolved and may contain NUL. */

#ifndef EMULATOR_JSON_H
#define EMULATOR_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include "buffers.h"

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_type type;
    bool boolean;
    double number;
    const char *text; /* strings: the value; numbers: as written */
    size_t len;
    const char *key; /* members of an object */
    size_t key_len;
    struct json *child; /* first element or member */
    struct json *next;
};

struct json_document;

struct json_document *json_parse(const char *text, size_t len, struct buf *error);
const struct json *json_root(const struct json_document *doc);
void json_free(struct json_document *doc);
const struct json *json_get(const struct json *object, const char *key);
bool json_is_string(const struct json *node, const char *text);

void json_write_string(struct buf *out, const char *text, size_t len);
void json_write(struct buf *out, const struct json *node);

#endif
