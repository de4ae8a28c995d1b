/* prompt_view.h: a prompt's token ids as the things rules ask about: the last user turn, the tool results after
 * it, whether the prompt leaves the model thinking, and what it has begun of the answer. */

#ifndef EMULATOR_PROMPT_VIEW_H
#define EMULATOR_PROMPT_VIEW_H

#include <stdbool.h>
#include <stddef.h>

#include "buffers.h"
#include "pictures.h"
#include "script.h"

/* Where thinking is at the end of the prompt. */
enum thinking { THINKING_FREE, THINKING_OPENED, THINKING_CLOSED };

struct prompt_view {
    char *text;   /* the whole prompt; NUL bytes have become spaces */
    char *user;   /* the last user turn that is not a tool result; the whole prompt when no turn is marked */
    char *result; /* the last tool result after it; "" when none exists */
    char *begun;  /* what is in the model's own turn already; "" when that is empty */
    int results;
    enum thinking thinking;
};

void prompt_view_read(struct prompt_view *view, const struct script *script, const struct ids *ids,
                      const struct pictures *pictures, size_t noisy_from);
void prompt_view_free(struct prompt_view *view);

#endif
