/* answer.h: what the scripted model says to a prompt. */

#ifndef EMULATOR_ANSWER_H
#define EMULATOR_ANSWER_H

#include "prompt_view.h"
#include "script.h"
#include "values.h"

/* Returns the chosen rule (owned by the script), or NULL when none fits; appends the answer's ids, without EOS, and
 * what the rule wants of the logits. lora is the adapter in use, NULL without one. */
const struct rule *answer_compose(const struct script *script, const struct prompt_view *view, const char *lora,
                                  struct ids *out, struct token_values *values);

#endif
