/* sampling.c: see sampling.h. The order is llama.cpp's: penalties, top_k, top_p, temperature. */

#include "sampling.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buffers.h"

struct candidate {
    int32_t id;
    float logit;
};

/* Returns what random numbers begin with: $RKLLM_EMULATOR_SEED, else the time. Never 0, which stays 0. */
uint64_t sampling_seed(void) {
    const char *seed = getenv("RKLLM_EMULATOR_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t value = seed && *seed ? strtoull(seed, NULL, 10) : (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
    return value * 0x9E3779B97F4A7C15ULL | 1;
}

/* Returns a number from 0 to below 1 (xorshift). */
static double draw_number(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (double)(*state >> 11) / 9007199254740992.0;
}

/* Returns the token with the highest logit. */
int32_t sampling_best(const float *logits, size_t width) {
    size_t best = 0;
    for (size_t i = 1; i < width; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

/* Counts an id among the recent tokens; 0 for one that is earlier in them and was counted there. */
static int count_once(const int32_t *recent, size_t count, size_t at) {
    int times = 0;
    for (size_t i = 0; i < count; i++) {
        if (recent[i] != recent[at]) continue;
        if (i < at) return 0;
        times++;
    }
    return times;
}

/* Makes tokens that came lately less likely. */
static void apply_penalties(const struct sampling *how, float *logits, size_t width, const int32_t *recent,
                            size_t count) {
    float repeat = how->repeat_penalty > 0 ? how->repeat_penalty : 1;
    for (size_t i = 0; i < count; i++) {
        int32_t id = recent[i];
        int times = id >= 0 && (size_t)id < width ? count_once(recent, count, i) : 0;
        if (!times) continue;
        logits[id] = logits[id] > 0 ? logits[id] / repeat : logits[id] * repeat;
        logits[id] -= how->frequency_penalty * (float)times + how->presence_penalty;
    }
}

static int compare_logits(const void *left, const void *right) {
    float a = ((const struct candidate *)left)->logit, b = ((const struct candidate *)right)->logit;
    return a < b ? 1 : a > b ? -1 : 0;
}

/* Draws one of the sorted candidates: those that top_p leaves, each as likely as the temperature makes it. */
static int32_t draw_candidate(const struct sampling *how, const struct candidate *list, size_t count, uint64_t *state) {
    double sum = 0, share = 0;
    size_t left = 0;
    for (size_t i = 0; i < count; i++) sum += exp((double)(list[i].logit - list[0].logit));
    do share += exp((double)(list[left].logit - list[0].logit)) / sum;
    while (++left < count && share < how->top_p);
    sum = 0;
    for (size_t i = 0; i < left; i++) sum += exp((double)(list[i].logit - list[0].logit) / how->temperature);
    double at = draw_number(state) * sum;
    for (size_t i = 0; i < left; i++) {
        at -= exp((double)(list[i].logit - list[0].logit) / how->temperature);
        if (at <= 0) return list[i].id;
    }
    return list[left - 1].id;
}

/* Draws the next token. A temperature of 0, or a top_k of 1, takes the likeliest. */
int32_t sampling_draw(const struct sampling *how, const float *logits, size_t width, const int32_t *recent,
                      size_t count, uint64_t *state) {
    float *changed = mem_alloc(width * sizeof *changed);
    memcpy(changed, logits, width * sizeof *changed);
    if (count > PENALTY_WINDOW) {
        recent += count - PENALTY_WINDOW;
        count = PENALTY_WINDOW;
    }
    apply_penalties(how, changed, width, recent, count);
    int32_t id = sampling_best(changed, width);
    if (how->temperature > 0 && how->top_k != 1) {
        struct candidate *list = mem_alloc(width * sizeof *list);
        /* What lies further below has no chance worth the sorting. */
        float least = changed[id] - 30 * (how->temperature > 1 ? how->temperature : 1);
        size_t number = 0;
        for (size_t i = 0; i < width; i++)
            if (changed[i] >= least) list[number++] = (struct candidate){(int32_t)i, changed[i]};
        qsort(list, number, sizeof *list, compare_logits);
        if (how->top_k > 0 && (size_t)how->top_k < number) number = (size_t)how->top_k;
        id = draw_candidate(how, list, number, state);
        free(list);
    }
    free(changed);
    return id;
}
