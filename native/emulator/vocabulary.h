/* vocabulary.h: token ids to bytes and back.
 *
 * Two kinds exist: the 256 bytes followed by declared control tokens, and the pieces of a Hugging Face
 * tokenizer.json (byte-level BPE, or sentencepiece pieces with U+2581 for a space and <0xNN> for a byte).
 * A control token is an added token; those marked special are the ones skip_special_token suppresses.
 * Text is cut greedily into the longest pieces: enough for a script, and decoding is what has to be exact. */

#ifndef EMULATOR_VOCABULARY_H
#define EMULATOR_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffers.h"

/* What a picture in a prompt looks like to expressions: U+FFFC, the object replacement character. */
#define VOCABULARY_PICTURE "\xef\xbf\xbc"

struct vocabulary;

struct vocabulary *vocabulary_create(void);
struct vocabulary *vocabulary_of_bytes(void);
struct vocabulary *vocabulary_load(const char *path, struct buf *error);
void vocabulary_free(struct vocabulary *v);

void vocabulary_add_piece(struct vocabulary *v, int32_t id, const char *bytes, size_t len);
void vocabulary_add_control(struct vocabulary *v, int32_t id, const char *text, size_t len, bool special);
void vocabulary_pad(struct vocabulary *v, size_t count);
void vocabulary_finish(struct vocabulary *v);

size_t vocabulary_size(const struct vocabulary *v);
bool vocabulary_has(const struct vocabulary *v, int32_t id);
const char *vocabulary_text(const struct vocabulary *v, int32_t id, size_t *len);
bool vocabulary_is_special(const struct vocabulary *v, int32_t id);
int32_t vocabulary_find(const struct vocabulary *v, const char *text);

void vocabulary_encode(const struct vocabulary *v, const char *text, size_t len, const char *plain, struct ids *out);
void vocabulary_decode(const struct vocabulary *v, const int32_t *ids, size_t count, struct buf *text,
                       struct buf *origin);

#endif
