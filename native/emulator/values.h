/* values.h: the numbers of a model that computes nothing: hidden states and logits, made from token ids alone.
 *
 * The same ids give the same numbers in every process and family. A row depends on its token and those before it,
 * as in a model that reads from left to right. */

#ifndef EMULATOR_VALUES_H
#define EMULATOR_VALUES_H

#include <stddef.h>
#include <stdint.h>

struct vocabulary;

/* What a rule of the script says of single tokens in the last row of logits. */
struct token_values {
    struct token_value {
        int32_t id;
        float value;
    } * list;
    size_t count;
};

void token_values_put(struct token_values *values, int32_t id, double value);
void token_values_free(struct token_values *values);

void values_hidden(const struct vocabulary *v, const int32_t *ids, size_t count, size_t width, size_t from,
                   float *rows);
void values_logits(const int32_t *ids, size_t count, size_t width, size_t from, int32_t next,
                   const struct token_values *chosen, float *rows);
int32_t values_of_picture(const float *row, size_t width, size_t vocabulary_size);

#endif
