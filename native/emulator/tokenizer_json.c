/* tokenizer_json.c: a Hugging Face tokenizer.json to a vocabulary. Reads the pieces, the added tokens and how
 * pieces spell bytes; knows nothing of merges, scores, normalisers or pre-tokenizers. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "source_file.h"
#include "utf8.h"
#include "vocabulary.h"

/* Ids above this are a damaged file, not a large vocabulary. */
#define HIGHEST_ID 4000000

/* The byte-level spelling: bytes that print represent themselves, the others are the characters from U+0100 on. */
struct byte_spelling {
    int byte_of[512];
};

/* Fills the table from character to byte; -1 where a character represents none. */
static void fill_byte_spelling(struct byte_spelling *spelling) {
    int next = 256;
    for (int code = 0; code < 512; code++) spelling->byte_of[code] = -1;
    for (int byte = 0; byte < 256; byte++) {
        bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        spelling->byte_of[prints ? byte : next++] = byte;
    }
}

/* Reads the character at the start of text, at most two bytes wide; returns its width, or 0 when it is wider. */
static size_t read_narrow(const char *text, size_t len, unsigned *code) {
    const unsigned char *bytes = (const unsigned char *)text;
    size_t width = utf8_width(text, len);
    *code = width == 2 ? (bytes[0] & 0x1fu) << 6 | (bytes[1] & 0x3fu) : bytes[0];
    return width <= 2 ? width : 0;
}

/* Appends the bytes a byte-level piece represents; a piece spelled otherwise is taken as it is. */
static void decode_byte_level(const struct byte_spelling *spelling, const char *text, size_t len, struct buf *out) {
    size_t before = out->len;
    for (size_t at = 0; at < len;) {
        unsigned code;
        size_t width = read_narrow(text + at, len - at, &code);
        if (!width || code >= 512 || spelling->byte_of[code] < 0) {
            out->len = before;
            buf_put(out, text, len);
            return;
        }
        buf_putc(out, (char)spelling->byte_of[code]);
        at += width;
    }
}

/* Appends the bytes a sentencepiece piece represents: <0xNN> is one byte, U+2581 a space. */
static void decode_sentencepiece(const char *text, size_t len, struct buf *out) {
    unsigned byte;
    char closer;
    if (len == 6 && sscanf(text, "<0x%2x%c", &byte, &closer) == 2 && closer == '>') {
        buf_putc(out, (char)byte);
        return;
    }
    for (size_t at = 0; at < len;) {
        bool space = len - at >= 3 && memcmp(text + at, "\xe2\x96\x81", 3) == 0;
        buf_putc(out, space ? ' ' : text[at]);
        at += space ? 3 : 1;
    }
}

/* True when node, or anything in it, is an object whose type is ByteLevel. */
static bool mentions_byte_level(const struct json *node) {
    if (!node) return false;
    if (json_is_string(json_get(node, "type"), "ByteLevel")) return true;
    for (const struct json *item = node->child; item; item = item->next)
        if (mentions_byte_level(item)) return true;
    return false;
}

struct reading {
    struct vocabulary *vocabulary;
    struct byte_spelling spelling;
    bool byte_level;
    struct buf scratch;
};

/* Adds one piece under its id; damaged entries are passed over. */
static void add_piece(struct reading *r, const char *text, size_t len, double id) {
    if (!text || id < 0 || id > HIGHEST_ID) return;
    buf_clear(&r->scratch);
    if (r->byte_level)
        decode_byte_level(&r->spelling, text, len, &r->scratch);
    else
        decode_sentencepiece(text, len, &r->scratch);
    vocabulary_add_piece(r->vocabulary, (int32_t)id, buf_text(&r->scratch), r->scratch.len);
}

/* Adds model.vocab: an object of piece to id, or an array of [piece, score] in the order of the ids. */
static bool add_pieces(struct reading *r, const struct json *vocab) {
    if (!vocab || (vocab->type != JSON_OBJECT && vocab->type != JSON_ARRAY)) return false;
    double position = 0;
    for (const struct json *item = vocab->child; item; item = item->next, position++) {
        if (vocab->type == JSON_OBJECT)
            add_piece(r, item->key, item->key_len, item->type == JSON_NUMBER ? item->number : -1);
        else if (item->child && item->child->type == JSON_STRING)
            add_piece(r, item->child->text, item->child->len, position);
    }
    return true;
}

/* Adds the control tokens. */
static void add_controls(struct reading *r, const struct json *added) {
    for (const struct json *item = added ? added->child : NULL; item; item = item->next) {
        const struct json *id = json_get(item, "id"), *content = json_get(item, "content");
        const struct json *special = json_get(item, "special");
        if (!id || id->type != JSON_NUMBER || id->number < 0 || id->number > HIGHEST_ID) continue;
        if (!content || content->type != JSON_STRING) continue;
        vocabulary_add_control(r->vocabulary, (int32_t)id->number, content->text, content->len,
                               special && special->boolean);
    }
}

/* Turns a parsed tokenizer.json into a vocabulary, or NULL when it has no pieces. */
static struct vocabulary *read_tokenizer(const struct json *root) {
    struct reading r = {.vocabulary = vocabulary_create()};
    fill_byte_spelling(&r.spelling);
    r.byte_level = mentions_byte_level(json_get(root, "decoder")) ||
                   mentions_byte_level(json_get(root, "pre_tokenizer"));
    bool pieces = add_pieces(&r, json_get(json_get(root, "model"), "vocab"));
    add_controls(&r, json_get(root, "added_tokens"));
    buf_free(&r.scratch);
    if (pieces) return r.vocabulary;
    vocabulary_free(r.vocabulary);
    return NULL;
}

/* Reads the file at path. Returns a vocabulary the caller finishes and frees, or NULL with a reason in error. */
struct vocabulary *vocabulary_load(const char *path, struct buf *error) {
    struct buf text = {0}, why = {0};
    struct vocabulary *v = NULL;
    if (!source_file_read(path, &text)) {
        buf_printf(error, "the vocabulary '%s' cannot be read: %s", path, strerror(errno));
    } else {
        struct json_document *doc = json_parse(buf_text(&text), text.len, &why);
        if (doc) v = read_tokenizer(json_root(doc));
        if (!v)
            buf_printf(error, "the vocabulary '%s' is not a tokenizer.json: %s", path,
                       why.len ? buf_text(&why) : "model.vocab is missing");
        json_free(doc);
    }
    buf_free(&text);
    buf_free(&why);
    return v;
}
