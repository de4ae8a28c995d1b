/* speeds.h: how long a model takes, in words ("flat", "prefill 300 decode 12", "profile qwen3-0.6b"). */

#ifndef EMULATOR_SPEEDS_H
#define EMULATOR_SPEEDS_H

#include <stdbool.h>
#include <stddef.h>

struct speed {
    double prefill;   /* tokens per second at the start of the context; 0 takes no time */
    double halved_at; /* tokens of context after which a prefill is half as fast; 0: it never slows down */
    double decode;
};

bool speed_read(const char *words, struct speed *speed);
double speed_of_prefill(const struct speed *speed, size_t before, size_t count);

#endif
