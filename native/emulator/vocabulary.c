/* vocabulary.c: the tables of vocabulary.h. Reading tokenizer.json is in tokenizer_json.c. */

#include "vocabulary.h"

#include <stdlib.h>
#include <string.h>

struct token {
    size_t at, len; /* in the pool */
    bool known, control, special;
};

/* Open addressing from bytes to an id; the slots hold id + 1, and 0 when empty. */
struct index {
    uint32_t *slots;
    size_t size; /* a power of two */
    size_t longest;
};

struct vocabulary {
    struct token *tokens;
    size_t count;
    size_t cap;
    struct buf pool;
    struct index pieces, controls;
};

/* Returns an empty vocabulary the caller frees; add to it, then call vocabulary_finish. */
struct vocabulary *vocabulary_create(void) { return mem_alloc(sizeof(struct vocabulary)); }

/* Returns ids 0 to 255 for the bytes of the same value; control tokens may still be added before finishing. */
struct vocabulary *vocabulary_of_bytes(void) {
    struct vocabulary *v = vocabulary_create();
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        vocabulary_add_piece(v, byte, &c, 1);
    }
    return v;
}

/* Frees the vocabulary; NULL is allowed. */
void vocabulary_free(struct vocabulary *v) {
    if (!v) return;
    free(v->tokens);
    free(v->pieces.slots);
    free(v->controls.slots);
    buf_free(&v->pool);
    free(v);
}

/* Sets the bytes of an id, making room up to it; a later call for the same id replaces the earlier. */
static struct token *set_token(struct vocabulary *v, int32_t id, const char *bytes, size_t len) {
    size_t index = (size_t)id;
    if (index >= v->cap) {
        size_t cap = v->cap ? v->cap : 512;
        while (cap <= index) cap *= 2;
        v->tokens = mem_grow(v->tokens, cap * sizeof *v->tokens);
        memset(v->tokens + v->cap, 0, (cap - v->cap) * sizeof *v->tokens);
        v->cap = cap;
    }
    if (index >= v->count) v->count = index + 1;
    v->tokens[index] = (struct token){.at = v->pool.len, .len = len, .known = true};
    buf_put(&v->pool, bytes, len);
    return &v->tokens[index];
}

/* Adds an ordinary piece; id must not be negative. */
void vocabulary_add_piece(struct vocabulary *v, int32_t id, const char *bytes, size_t len) {
    set_token(v, id, bytes, len);
}

/* Adds a control token, replacing a piece with the same id; id must not be negative. */
void vocabulary_add_control(struct vocabulary *v, int32_t id, const char *text, size_t len, bool special) {
    struct token *token = set_token(v, id, text, len);
    token->control = true;
    token->special = special;
}

/* Makes count ids exist, those beyond the last without a text: a model's padding. */
void vocabulary_pad(struct vocabulary *v, size_t count) {
    if (count <= v->count) return;
    set_token(v, (int32_t)count - 1, "", 0)->known = false;
}

#define HASH_START 1469598103934665603ULL

/* One step of the FNV-1a hash. */
static uint64_t hash_byte(uint64_t hash, char c) { return (hash ^ (unsigned char)c) * 1099511628211ULL; }

/* Returns the id whose bytes are these, or -1. */
static int32_t index_find(const struct vocabulary *v, const struct index *index, uint64_t hash, const char *bytes,
                          size_t len) {
    if (!index->size) return -1;
    for (size_t slot = hash & (index->size - 1); index->slots[slot]; slot = (slot + 1) & (index->size - 1)) {
        const struct token *token = &v->tokens[index->slots[slot] - 1];
        if (token->len == len && memcmp(v->pool.data + token->at, bytes, len) == 0)
            return (int32_t)(index->slots[slot] - 1);
    }
    return -1;
}

/* Enters an id unless its bytes are there already: the lowest id of equal pieces wins. */
static void index_put(struct vocabulary *v, struct index *index, size_t id) {
    const struct token *token = &v->tokens[id];
    const char *bytes = v->pool.data + token->at;
    uint64_t hash = HASH_START;
    for (size_t i = 0; i < token->len; i++) hash = hash_byte(hash, bytes[i]);
    if (!token->len || index_find(v, index, hash, bytes, token->len) >= 0) return;
    size_t slot = hash & (index->size - 1);
    while (index->slots[slot]) slot = (slot + 1) & (index->size - 1);
    index->slots[slot] = (uint32_t)id + 1;
    if (token->len > index->longest) index->longest = token->len;
}

/* Builds the lookup tables; call once, after the last addition. */
void vocabulary_finish(struct vocabulary *v) {
    size_t size = 16;
    while (size < v->count * 2) size *= 2;
    v->pieces = (struct index){.slots = mem_alloc(size * sizeof(uint32_t)), .size = size};
    v->controls = (struct index){.slots = mem_alloc(size * sizeof(uint32_t)), .size = size};
    for (size_t id = 0; id < v->count; id++)
        if (v->tokens[id].known) index_put(v, v->tokens[id].control ? &v->controls : &v->pieces, id);
}

/* Returns the number of ids: one more than the highest. */
size_t vocabulary_size(const struct vocabulary *v) { return v->count; }

/* True when the id lies inside the vocabulary; gaps between ids count, as a model's padding does. */
bool vocabulary_has(const struct vocabulary *v, int32_t id) { return id >= 0 && (size_t)id < v->count; }

/* Returns the bytes of an id (owned by the vocabulary, not terminated) and their number; "" for unknown ids. */
const char *vocabulary_text(const struct vocabulary *v, int32_t id, size_t *len) {
    *len = vocabulary_has(v, id) ? v->tokens[id].len : 0;
    return *len ? v->pool.data + v->tokens[id].at : "";
}

/* True for a control token that skip_special_token suppresses. */
bool vocabulary_is_special(const struct vocabulary *v, int32_t id) {
    return vocabulary_has(v, id) && v->tokens[id].special;
}

/* Returns the id of the longest entry of index at the start of text and its length; -1 when none fits. */
static int32_t longest_match(const struct vocabulary *v, const struct index *index, const char *text, size_t len,
                             size_t *matched) {
    int32_t best = -1;
    uint64_t hash = HASH_START;
    if (len > index->longest) len = index->longest;
    for (size_t i = 0; i < len; i++) {
        hash = hash_byte(hash, text[i]);
        int32_t id = index_find(v, index, hash, text, i + 1);
        if (id < 0) continue;
        best = id;
        *matched = i + 1;
    }
    return best;
}

/* Returns the id whose whole text this is, control tokens first; -1 when none exists. */
int32_t vocabulary_find(const struct vocabulary *v, const char *text) {
    size_t len = strlen(text), matched = 0;
    int32_t id = longest_match(v, &v->controls, text, len, &matched);
    if (id < 0 || matched != len) id = longest_match(v, &v->pieces, text, len, &matched);
    return matched == len ? id : -1;
}

/* Text being cut, with the bytes in which no control token is recognised (NULL: none). */
struct cutting {
    const char *text, *plain;
    size_t len;
};

/* Returns the first position from at on where a control token is, with its id and length; len without one. */
static size_t next_control(const struct vocabulary *v, const struct cutting *c, size_t at, int32_t *id,
                           size_t *matched) {
    for (; at < c->len; at++) {
        *id = longest_match(v, &v->controls, c->text + at, c->len - at, matched);
        if (*id >= 0 && !(c->plain && memchr(c->plain + at, 1, *matched))) break;
    }
    return at;
}

/* Appends the ids of len bytes of text to out.
 * Where plain is not NULL it has one byte per byte of text, and a control token is recognised only where all of
 * its bytes are 0 there. No piece swallows the beginning of a control token; a byte no piece covers is left out. */
void vocabulary_encode(const struct vocabulary *v, const char *text, size_t len, const char *plain, struct ids *out) {
    const struct cutting c = {.text = text, .plain = plain, .len = len};
    int32_t control_id = -1;
    size_t control_len = 0, control_at = next_control(v, &c, 0, &control_id, &control_len);
    for (size_t at = 0; at < len;) {
        size_t matched = 1;
        int32_t id = control_id;
        if (at == control_at) {
            matched = control_len;
            control_at = next_control(v, &c, at + matched, &control_id, &control_len);
        } else {
            id = longest_match(v, &v->pieces, text + at, control_at - at, &matched);
        }
        if (id >= 0) ids_put(out, id);
        at += matched;
    }
}

/* Appends the bytes of count ids to text; neighbouring pieces of a picture (negative ids) are one character.
 * Where origin is not NULL it receives one byte per byte of text: 1 from a special token, else 0. */
void vocabulary_decode(const struct vocabulary *v, const int32_t *ids, size_t count, struct buf *text,
                       struct buf *origin) {
    for (size_t i = 0; i < count; i++) {
        size_t len;
        const char *bytes = vocabulary_text(v, ids[i], &len);
        if (ids[i] < 0) {
            if (i && ids[i - 1] < 0) continue;
            bytes = VOCABULARY_PICTURE;
            len = sizeof VOCABULARY_PICTURE - 1;
        }
        buf_put(text, bytes, len);
        if (origin) buf_fill(origin, vocabulary_is_special(v, ids[i]) ? 1 : 0, len);
    }
}
