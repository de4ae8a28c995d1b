/* sampling.h: the next token, drawn from a row of logits. */

#ifndef EMULATOR_SAMPLING_H
#define EMULATOR_SAMPLING_H

#include <stddef.h>
#include <stdint.h>

/* The sampling parameters of the interface. Mirostat is left out: nothing here samples by it. */
struct sampling {
    int top_k;
    float top_p, temperature;
    float repeat_penalty, frequency_penalty, presence_penalty;
};

/* How many of the last tokens the penalties look at. */
#define PENALTY_WINDOW 64

uint64_t sampling_seed(void);
int32_t sampling_best(const float *logits, size_t width);
int32_t sampling_draw(const struct sampling *how, const float *logits, size_t width, const int32_t *recent,
                      size_t count, uint64_t *state);

#endif
