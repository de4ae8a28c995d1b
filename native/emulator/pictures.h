/* pictures.h: what pictures show, for the rules of a script. */

#ifndef EMULATOR_PICTURES_H
#define EMULATOR_PICTURES_H

#include <stddef.h>
#include <stdint.h>

#include "buffers.h"

/* The pictures that a model was given, by the ids that represent their rows. */
struct picture {
    struct ids ids;
    char *shown; /* in words */
};

struct pictures {
    struct picture *list;
    size_t count;
};

void pictures_put(struct pictures *pictures, const int32_t *ids, size_t tokens, const float *rows, size_t outputs,
                  size_t width);
const struct picture *pictures_find(const struct pictures *pictures, const int32_t *ids, size_t count);
void pictures_free(struct pictures *pictures);

#endif
