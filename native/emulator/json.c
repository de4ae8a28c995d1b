/* json.c: see json.h. Recursive descent over the text; nodes come from an arena of chunks. */

#include "json.h"

#include <stdlib.h>
#include <string.h>

#include "utf8.h"

/* Deeper nesting than any tokenizer or tool list has; keeps the recursion far from the end of a thread's stack. */
#define MAX_DEPTH 64
#define CHUNK_BYTES (256 * 1024)

struct chunk {
    struct chunk *next;
    size_t used, size;
    max_align_t space[];
};

struct json_document {
    struct json *root;
    struct chunk *chunks;
};

struct parser {
    const char *start, *at, *end;
    struct json_document *doc;
    const char *error;
    int depth;
};

/* Returns bytes of memory that live as long as the document. */
static void *arena_take(struct json_document *doc, size_t bytes) {
    size_t rounded = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (!doc->chunks || doc->chunks->size - doc->chunks->used < rounded) {
        size_t size = rounded > CHUNK_BYTES ? rounded : CHUNK_BYTES;
        struct chunk *chunk = mem_grow(NULL, sizeof *chunk + size);
        *chunk = (struct chunk){.next = doc->chunks, .size = size};
        doc->chunks = chunk;
    }
    void *block = (char *)doc->chunks->space + doc->chunks->used;
    doc->chunks->used += rounded;
    return block;
}

static struct json *parse_value(struct parser *p);

/* Records the first complaint and returns NULL, so that callers can return it. */
static struct json *fail(struct parser *p, const char *why) {
    if (!p->error) p->error = why;
    return NULL;
}

static void skip_space(struct parser *p) {
    while (p->at < p->end && strchr(" \t\r\n", *p->at) && *p->at) p->at++;
}

/* Steps over the character c, or returns false. */
static bool accept(struct parser *p, char c) {
    skip_space(p);
    if (p->at >= p->end || *p->at != c) return false;
    p->at++;
    return true;
}

/* Reads four hex digits into *code; false when they are not there. */
static bool read_hex4(struct parser *p, unsigned *code) {
    *code = 0;
    if (p->end - p->at < 4) return false;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef";
        char c = *p->at++;
        if (c >= 'A' && c <= 'F') c = (char)(c - 'A' + 'a');
        const char *found = c ? strchr(digits, c) : NULL;
        if (!found) return false;
        *code = *code * 16 + (unsigned)(found - digits);
    }
    return true;
}

/* Reads what follows \u, joining surrogate pairs; a lone surrogate becomes U+FFFD. */
static bool read_unicode(struct parser *p, char **out) {
    unsigned code, low;
    if (!read_hex4(p, &code)) return false;
    if (code >= 0xd800 && code < 0xdc00 && p->end - p->at >= 6 && p->at[0] == '\\' && p->at[1] == 'u') {
        const char *before = p->at;
        p->at += 2;
        if (!read_hex4(p, &low)) return false;
        if (low >= 0xdc00 && low < 0xe000)
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        else
            p->at = before;
    }
    if (code >= 0xd800 && code < 0xe000) code = 0xfffd;
    *out += utf8_encode(code, *out);
    return true;
}

/* Reads one escape after the backslash. */
static bool read_escape(struct parser *p, char **out) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (p->at >= p->end) return false;
    char c = *p->at++;
    if (c == 'u') return read_unicode(p, out);
    const char *found = c ? strchr(names, c) : NULL;
    if (!found) return false;
    *(*out)++ = values[found - names];
    return true;
}

/* Reads a string after its opening quote into the arena; false when it does not end or an escape is wrong. */
static bool parse_string(struct parser *p, const char **text, size_t *len) {
    const char *scan = p->at;
    while (scan < p->end && *scan != '"') scan += *scan == '\\' && scan + 1 < p->end ? 2 : 1;
    if (scan >= p->end) return fail(p, "a string does not end") != NULL;
    char *out = arena_take(p->doc, (size_t)(scan - p->at) + 1);
    *text = out;
    while (p->at < scan) {
        if (*p->at != '\\') {
            *out++ = *p->at++;
            continue;
        }
        p->at++;
        if (!read_escape(p, &out)) return fail(p, "an escape in a string is not known") != NULL;
    }
    p->at = scan + 1;
    *out = 0;
    *len = (size_t)(out - *text);
    return true;
}

/* Reads a number as strtod does, within the spelling of JSON. */
static struct json *parse_number(struct parser *p, struct json *node) {
    const char *start = p->at;
    while (p->at < p->end && *p->at && strchr("+-.0123456789eE", *p->at)) p->at++;
    size_t len = (size_t)(p->at - start);
    char *copy = arena_take(p->doc, len + 1), *stop;
    memcpy(copy, start, len);
    copy[len] = 0;
    node->type = JSON_NUMBER;
    node->number = strtod(copy, &stop);
    node->text = copy;
    node->len = len;
    return len && !*stop ? node : fail(p, "a value is not JSON");
}

/* Reads true, false or null. */
static struct json *parse_word(struct parser *p, struct json *node) {
    static const struct {
        const char *word;
        enum json_type type;
        bool boolean;
    } words[] = {{"true", JSON_BOOL, true}, {"false", JSON_BOOL, false}, {"null", JSON_NULL, false}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t len = strlen(words[i].word);
        if ((size_t)(p->end - p->at) < len || memcmp(p->at, words[i].word, len) != 0) continue;
        p->at += len;
        node->type = words[i].type;
        node->boolean = words[i].boolean;
        return node;
    }
    return parse_number(p, node);
}

/* Reads the elements of an array or the members of an object, after the opening bracket. */
static struct json *parse_container(struct parser *p, struct json *node, char closer) {
    struct json **tail = &node->child;
    node->type = closer == '}' ? JSON_OBJECT : JSON_ARRAY;
    if (accept(p, closer)) return node;
    do {
        const char *key = NULL;
        size_t key_len = 0;
        if (closer == '}') {
            if (!accept(p, '"')) return fail(p, "an object's member has no name");
            if (!parse_string(p, &key, &key_len)) return NULL;
            if (!accept(p, ':')) return fail(p, "a ':' is missing");
        }
        struct json *item = parse_value(p);
        if (!item) return NULL;
        item->key = key;
        item->key_len = key_len;
        *tail = item;
        tail = &item->next;
    } while (accept(p, ','));
    return accept(p, closer) ? node : fail(p, "a ',' or a closing bracket is missing");
}

/* Reads one value of any kind; NULL with p->error set when none exists. */
static struct json *parse_value(struct parser *p) {
    struct json *node = arena_take(p->doc, sizeof *node);
    *node = (struct json){0};
    if (p->depth >= MAX_DEPTH) return fail(p, "it is nested too deeply");
    skip_space(p);
    if (p->at >= p->end) return fail(p, "it ends too early");
    p->depth++;
    if (accept(p, '{'))
        node = parse_container(p, node, '}');
    else if (accept(p, '['))
        node = parse_container(p, node, ']');
    else if (accept(p, '"')) {
        node->type = JSON_STRING;
        if (!parse_string(p, &node->text, &node->len)) node = NULL;
    } else
        node = parse_word(p, node);
    p->depth--;
    return node;
}

/* Reads a whole text as one JSON value. Returns a document the caller frees, or NULL with a reason in error. */
struct json_document *json_parse(const char *text, size_t len, struct buf *error) {
    struct json_document *doc = mem_alloc(sizeof *doc);
    struct parser p = {.start = text, .at = text, .end = text + len, .doc = doc};
    doc->root = parse_value(&p);
    skip_space(&p);
    if (doc->root && p.at < p.end) fail(&p, "something follows the value");
    if (!p.error) return doc;
    buf_printf(error, "%s (byte %zu)", p.error, (size_t)(p.at - p.start));
    json_free(doc);
    return NULL;
}

/* Returns the top value, owned by the document. */
const struct json *json_root(const struct json_document *doc) { return doc->root; }

/* Frees the document with everything in it; NULL is allowed. */
void json_free(struct json_document *doc) {
    if (!doc) return;
    for (struct chunk *chunk = doc->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    free(doc);
}

/* Returns the member called key, or NULL when none exists or node is not an object (or NULL). */
const struct json *json_get(const struct json *node, const char *key) {
    if (!node || node->type != JSON_OBJECT) return NULL;
    for (const struct json *item = node->child; item; item = item->next)
        if (item->key_len == strlen(key) && memcmp(item->key, key, item->key_len) == 0) return item;
    return NULL;
}

/* True when node is the string text; false for NULL. */
bool json_is_string(const struct json *node, const char *text) {
    return node && node->type == JSON_STRING && node->len == strlen(text) && !memcmp(node->text, text, node->len);
}

/* Appends text as a quoted JSON string; bytes that are not UTF-8 become U+FFFD. NULL text writes null. */
void json_write_string(struct buf *out, const char *text, size_t len) {
    if (!text) {
        buf_puts(out, "null");
        return;
    }
    buf_putc(out, '"');
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)text[i];
        size_t width = utf8_width(text + i, len - i);
        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c == '\n')
            buf_puts(out, "\\n");
        else if (c < 0x20 || c == 0x7f)
            buf_printf(out, "\\u%04x", c);
        else if (width == 0)
            buf_puts(out, "\\ufffd");
        else
            buf_put(out, text + i, width);
        i += width ? width : 1;
    }
    buf_putc(out, '"');
}

/* Appends node as compact JSON, members in the order they were read. */
void json_write(struct buf *out, const struct json *node) {
    bool object = node->type == JSON_OBJECT;
    switch (node->type) {
    case JSON_NULL: buf_puts(out, "null"); break;
    case JSON_BOOL: buf_puts(out, node->boolean ? "true" : "false"); break;
    case JSON_NUMBER: buf_put(out, node->text, node->len); break;
    case JSON_STRING: json_write_string(out, node->text, node->len); break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        buf_putc(out, object ? '{' : '[');
        for (const struct json *item = node->child; item; item = item->next) {
            if (object) {
                json_write_string(out, item->key, item->key_len);
                buf_putc(out, ':');
            }
            json_write(out, item);
            if (item->next) buf_putc(out, ',');
        }
        buf_putc(out, object ? '}' : ']');
        break;
    }
}
