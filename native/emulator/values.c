/* values.c: see values.h.
 *
 * A hidden state is the sum of one pseudo-random direction for every short piece of text read so far, so that texts
 * with words in common point the same way and a search by embeddings finds something. Pieces are the ends of the
 * text at every token: the token, then with the one before it, until they have enough letters. Longer pieces count
 * more; that makes single bytes and whole words work alike. Control tokens say nothing. */

#include "values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "buffers.h"
#include "vocabulary.h"

/* Letters from which on a piece counts fully and is not made longer, and the most tokens it may be made of. */
#define PIECE_LETTERS 4
#define PIECE_TOKENS 4

/* How much a row says of its position next to what it says of the text; keeps equal tokens apart. */
#define POSITION_SHARE 0.05f

/* The logit of the token that really follows; all others lie between -1 and 1. */
#define LIKELY_LOGIT 8.0f

#define FNV_START 1469598103934665603ULL
#define FNV_STEP 1099511628211ULL

/* Returns well-mixed bits of a number (splitmix64). */
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

/* Appends a value for a token; the last one for an id counts. */
void token_values_put(struct token_values *values, int32_t id, double value) {
    values->list = mem_grow(values->list, (values->count + 1) * sizeof *values->list);
    values->list[values->count++] = (struct token_value){id, (float)value};
}

/* Frees the list and empties it. */
void token_values_free(struct token_values *values) {
    free(values->list);
    *values = (struct token_values){0};
}

/* Adds a direction that depends on seed alone; every number of it is weight or -weight. */
static void add_direction(float *sum, size_t width, uint64_t seed, float weight) {
    uint64_t bits = 0;
    for (size_t i = 0; i < width; i++, bits >>= 1) {
        if (i % 64 == 0) bits = mix(seed + i / 64);
        sum[i] += bits & 1 ? weight : -weight;
    }
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Appends the bytes of a token in lower case, each run of blanks as one space. */
static void put_folded(struct buf *out, const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
        if (is_blank(c)) c = ' ';
        if (c != ' ' || (out->len && out->data[out->len - 1] != ' ')) buf_putc(out, c);
    }
}

/* True for a token that is text: no control token, no part of a picture. */
static bool is_text(const struct vocabulary *v, int32_t id) {
    return vocabulary_has(v, id) && !vocabulary_is_special(v, id);
}

/* Returns the hash of the text of ids[start..end) and how many letters it has. */
static uint64_t read_piece(const struct vocabulary *v, const int32_t *ids, size_t start, size_t end, size_t *letters) {
    struct buf text = {0};
    uint64_t hash = FNV_START;
    for (size_t i = start; i < end; i++) {
        size_t len;
        const char *bytes = vocabulary_text(v, ids[i], &len);
        put_folded(&text, bytes, len);
    }
    while (text.len && text.data[text.len - 1] == ' ') text.len--;
    for (size_t i = 0; i < text.len; i++) hash = (hash ^ (unsigned char)text.data[i]) * FNV_STEP;
    *letters = text.len;
    buf_free(&text);
    return hash;
}

/* Adds what the text says that ends with the token at a position. */
static void add_token(const struct vocabulary *v, const int32_t *ids, size_t at, float *sum, size_t width) {
    if (!vocabulary_has(v, ids[at])) add_direction(sum, width, mix((uint64_t)(int64_t)ids[at]), 1);
    size_t letters = 0;
    for (size_t back = 0; back < PIECE_TOKENS && back <= at && letters < PIECE_LETTERS; back++) {
        if (!is_text(v, ids[at - back])) return;
        uint64_t hash = read_piece(v, ids, at - back, at + 1, &letters);
        float share = (float)(letters < PIECE_LETTERS ? letters : PIECE_LETTERS) / PIECE_LETTERS;
        if (letters) add_direction(sum, width, hash, share * share);
    }
}

/* Writes the row of one position: the sum so far, scaled to the length of a vector of ones, and the position. */
static void write_row(const float *sum, size_t width, int32_t id, size_t at, float *row) {
    float square = 0;
    for (size_t i = 0; i < width; i++) square += sum[i] * sum[i];
    float scale = square > 0 ? sqrtf((float)width / square) : 0;
    for (size_t i = 0; i < width; i++) row[i] = sum[i] * scale;
    add_direction(row, width, mix((uint64_t)(uint32_t)id) + at, square > 0 ? POSITION_SHARE : 1);
}

/* Writes the hidden states of the positions from..count-1, a row of width numbers for each. */
void values_hidden(const struct vocabulary *v, const int32_t *ids, size_t count, size_t width, size_t from,
                   float *rows) {
    float *sum = mem_alloc(width * sizeof *sum);
    for (size_t at = 0; at < count; at++) {
        add_token(v, ids, at, sum, width);
        if (at >= from) write_row(sum, width, ids[at], at, rows + (at - from) * width);
    }
    free(sum);
}

/* Writes the logits of the positions from..count-1, a row of width numbers for each. The largest of a row is that of
 * the token that follows in the prompt, after its end that of next; chosen values replace others in the last row. */
void values_logits(const int32_t *ids, size_t count, size_t width, size_t from, int32_t next,
                   const struct token_values *chosen, float *rows) {
    for (size_t at = from; at < count; at++) {
        float *row = rows + (at - from) * width;
        uint64_t state = mix(mix((uint64_t)(uint32_t)ids[at]) + at) | 1;
        for (size_t i = 0; i < width; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            row[i] = (float)(int32_t)(state >> 32) / 2147483648.0f;
        }
        int32_t follows = at + 1 < count ? ids[at + 1] : next;
        if (follows >= 0 && (size_t)follows < width) row[follows] = LIKELY_LOGIT;
    }
    float *last = rows + (count - 1 - from) * width;
    for (size_t i = 0; i < chosen->count; i++) last[chosen->list[i].id] = chosen->list[i].value;
}

/* Returns the token that a row of an embedding represents. A row that begins with the number of an id and goes on
 * with zeroes is that id; any other is a piece of a picture, with its own negative id. */
int32_t values_of_picture(const float *row, size_t width, size_t vocabulary_size) {
    uint64_t hash = FNV_START;
    bool plain = row[0] >= 0 && row[0] < (float)vocabulary_size && floorf(row[0]) == row[0];
    for (size_t i = 0; i < width; i++) {
        uint32_t bits;
        memcpy(&bits, &row[i], sizeof bits);
        hash = (hash ^ bits) * FNV_STEP;
        if (i && row[i] != 0) plain = false;
    }
    return plain ? (int32_t)row[0] : -2 - (int32_t)(mix(hash) >> 34);
}
