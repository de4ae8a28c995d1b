/* weights.h: a model with real weights (a GGUF file), computed on the CPU by llama.cpp.
 *
 * It is after the script in place of its rules: prompts, KV cache, callbacks, aborts and faults are the
 * emulator's. Its own cache follows: what a sequence has evaluated is compared with what it is to hold. */

#ifndef EMULATOR_WEIGHTS_H
#define EMULATOR_WEIGHTS_H

#include <stdbool.h>

#include "buffers.h"
#include "sampling.h"

struct weights;

/* Asked between two parts of a long evaluation; true ends it. */
typedef bool (*weights_stop)(void *context);

enum weights_outcome { WEIGHTS_DONE, WEIGHTS_STOPPED, WEIGHTS_FAILED };

struct weights *weights_open(const char *path, int context, int sequences, struct buf *error);
void weights_close(struct weights *w);
int weights_width(const struct weights *w);
size_t weights_vocabulary(const struct weights *w);
bool weights_ends(const struct weights *w, int32_t id);
bool weights_encode(const struct weights *w, const char *text, size_t len, struct ids *out);
void weights_keep_row(struct weights *w, int32_t id, const float *row);
uint64_t weights_identity(const struct weights *w);
void weights_save(const struct weights *w, struct buf *out);
bool weights_load(struct weights *w, const struct ids *ids, const char *state, size_t size);
void weights_release(struct weights *w);
enum weights_outcome weights_hold(struct weights *w, int sequence, const struct ids *ids, weights_stop stop,
                                  void *context);
bool weights_hold_to(struct weights *w, int sequence, const char *grammar);
int32_t weights_sample(struct weights *w, int sequence, const struct sampling *how, const struct ids *recent);
enum weights_outcome weights_rows(struct weights *w, int sequence, const struct ids *ids, size_t from, bool logits,
                                  float *rows, weights_stop stop, void *context);

#endif
