/* speeds.c: see speeds.h.
 *
 * Prefilling a token takes longer the more tokens are before it, because it looks at all of them: at position p it
 * takes (1 + p / halved_at) times what the first one takes. */

#include "speeds.h"

#include <stdlib.h>
#include <string.h>

#include "buffers.h"
#include "script_words.h"

/* How many tokens the prompts of the published table have. */
#define TABLE_TOKENS 128

/* Where a prefill is half as fast. Qwen3-0.6B: 199 ms for 128 tokens (benchmark.md) and about 20 s for 4000
 * (rknn-llm #372) fit 810. Qwen3-1.7B: 15 s for 1024 and 226 s for 8192 tokens (rkllama #169) fit 3550; the models of
 * which only the table's figure is known take that. */
#define HALVED_SMALL 810
#define HALVED_OTHERS 3550

/* Published for RK3588, w8a8: Rockchip's benchmark.md of 1.3.0 (time to the first token after 128 tokens, tokens per
 * second); qwen3-1.7b is not in it and has rkllama #169's prefill and the decoding of a GatekeeperZA README. */
static const struct {
    const char *name;
    double first_token_ms, decode, halved_at;
} profiles[] = {
    {"minicpm4-0.5b", 135, 45.3, HALVED_OTHERS},  {"qwen2-0.5b", 146, 41.6, HALVED_OTHERS},
    {"qwen3-0.6b", 199, 32.9, HALVED_SMALL},      {"qwen3.5-0.8b", 588, 27.1, HALVED_OTHERS},
    {"tinyllama-1.1b", 244, 24.4, HALVED_OTHERS}, {"qwen2.5-1.5b", 378, 16.7, HALVED_OTHERS},
    {"qwen3-1.7b", 1668, 13.0, HALVED_OTHERS},    {"qwen3-vl-2b", 384, 15.0, HALVED_OTHERS},
    {"qwen3.5-2b", 777, 13.6, HALVED_OTHERS},     {"gemma4-e2b", 599, 11.1, HALVED_OTHERS},
    {"phi3-3.8b", 1017, 7.5, HALVED_OTHERS},      {"qwen3.5-4b", 2069, 6.2, HALVED_OTHERS},
};

/* Returns how many times the first token's time the tokens before..before+count-1 take together. */
static double effort(double halved_at, double before, double count) {
    if (halved_at <= 0) return count;
    return count + count * (before + (count - 1) / 2) / halved_at;
}

/* Finds a published model; false for a name that is not in the table. */
static bool find_profile(const char *name, struct speed *speed) {
    for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++) {
        if (strcmp(profiles[i].name, name) != 0) continue;
        double halved_at = profiles[i].halved_at, work = effort(halved_at, 0, TABLE_TOKENS);
        *speed = (struct speed){work / profiles[i].first_token_ms * 1000, halved_at, profiles[i].decode};
        return true;
    }
    return false;
}

/* Reads prefill X decode Y [halved-at N] from count words. */
static bool read_figures(char **words, size_t count, struct speed *speed) {
    if (count != 4 && count != 6) return false;
    if (strcmp(words[0], "prefill") || strcmp(words[2], "decode")) return false;
    if (count == 6 && (strcmp(words[4], "halved-at") || !words_number(words[5], 1, 1e9, &speed->halved_at)))
        return false;
    return words_number(words[1], 1e-3, 1e9, &speed->prefill) && words_number(words[3], 1e-3, 1e9, &speed->decode);
}

/* Reads "flat", "prefill X decode Y [halved-at N]", "profile NAME" or a profile's name alone; a trailing comment is
 * allowed. False leaves *speed as it was. */
bool speed_read(const char *words, struct speed *speed) {
    char *copy = mem_string(words), *at = copy, **list = NULL;
    size_t count = 0;
    struct buf word = {0};
    struct speed found = {0};
    while (words_next(&at, &word)) words_push(&list, &count, buf_text(&word));
    bool good = count == 1 && (strcmp(list[0], "flat") == 0 || find_profile(list[0], &found));
    good = good || (count == 2 && strcmp(list[0], "profile") == 0 && find_profile(list[1], &found));
    good = good || read_figures(list, count, &found);
    if (good) *speed = found;
    words_free(list, count);
    buf_free(&word);
    free(copy);
    return good;
}

/* Returns the seconds it takes to evaluate count tokens after others. */
double speed_of_prefill(const struct speed *speed, size_t before, size_t count) {
    if (speed->prefill <= 0 || !count) return 0;
    return effort(speed->halved_at, (double)before, (double)count) / speed->prefill;
}
