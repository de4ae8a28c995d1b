/* relevance.c: see relevance.h.
 *
 * Words of ASCII letters and digits count when they have at least four characters or a digit, without regard to
 * case; other writing is cut into pairs of characters, because Japanese has no spaces. */

#include "relevance.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "buffers.h"
#include "utf8.h"

/* Shorter words are mostly grammar. */
#define SHORTEST_WORD 4

/* Nothing is certain: a logarithm of the answer is taken, and of what is missing to 1. */
#define LOWEST 0.02
#define HIGHEST 0.98

#define FNV_START 2166136261u
#define FNV_STEP 16777619u

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static uint32_t step(uint32_t hash, char c) { return (hash ^ (unsigned char)c) * FNV_STEP; }

/* Puts the hash of the word at the start of text; returns its length. */
static size_t put_word(const char *text, size_t len, struct ids *out) {
    uint32_t hash = FNV_START;
    size_t end = 0;
    bool counts = false;
    for (; end < len && is_word(text[end]); end++) {
        char c = text[end];
        counts = counts || is_digit(c);
        hash = step(hash, c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c);
    }
    if (counts || end >= SHORTEST_WORD) ids_put(out, (int32_t)hash);
    return end;
}

/* Puts the hash of the pair of characters at the start of text, when two are there; returns the first's length. */
static size_t put_pair(const char *text, size_t len, struct ids *out) {
    size_t first = utf8_width(text, len), second = first ? utf8_width(text + first, len - first) : 0;
    uint32_t hash = FNV_START;
    for (size_t i = 0; i < first + second; i++) hash = step(hash, text[i]);
    if (first > 1 && second > 1) ids_put(out, (int32_t)hash);
    return first ? first : 1;
}

static int compare(const void *left, const void *right) {
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    return (a > b) - (a < b);
}

/* Returns the sorted hashes of everything in the text that counts. */
static struct ids features(const char *text, size_t len) {
    struct ids found = {0};
    for (size_t at = 0; at < len;)
        at += is_word(text[at]) ? put_word(text + at, len - at, &found) : put_pair(text + at, len - at, &found);
    if (found.len) qsort(found.data, found.len, sizeof *found.data, compare);
    return found;
}

/* Returns the share of what the query asks for that the document mentions, within LOWEST and HIGHEST. */
double relevance(const char *query, size_t query_len, const char *document, size_t document_len) {
    struct ids wanted = features(query, query_len), there = features(document, document_len);
    size_t different = 0, found = 0;
    for (size_t i = 0; i < wanted.len; i++) {
        if (i && wanted.data[i] == wanted.data[i - 1]) continue;
        different++;
        if (there.len && bsearch(&wanted.data[i], there.data, there.len, sizeof *there.data, compare)) found++;
    }
    double share = different ? (double)found / (double)different : 0;
    ids_free(&wanted);
    ids_free(&there);
    return share < LOWEST ? LOWEST : share > HIGHEST ? HIGHEST : share;
}
