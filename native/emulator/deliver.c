/* deliver.c: what a result callback is given, and how it dies.
 *
 * Every callback gets a struct and a text of its own. When it returns, both are overwritten with a pattern; the
 * struct is freed at once, the text one callback later. A binding that keeps a pointer reads the pattern (which is
 * not UTF-8 and no address) instead of something that happens to work. */

#include <stdlib.h>
#include <string.h>

#include "console.h"
#include "model.h"
#include "utf8.h"

/* Bytes that no text and no pointer consists of. */
#define POISON 0xa5

/* Text smaller than this is padded, so that the pattern can be recognised. */
#define SMALLEST_TEXT 8

/* Frees the text of the last callback. */
void deliver_release(struct run *run) {
    free(run->stale_text);
    run->stale_text = NULL;
}

/* Returns a copy of the text in memory that only this callback uses; NULL for NULL. */
static char *own_text(const char *text, size_t len, size_t *room) {
    *room = len + 1 < SMALLEST_TEXT ? SMALLEST_TEXT : len + 1;
    if (!text) return NULL;
    char *copy = mem_alloc(*room);
    if (len) memcpy(copy, text, len);
    return copy;
}

/* Calls the callback and returns what it wishes: 0 go on, 1 pause, 2 drop the output buffer. */
static int invoke(struct run *run, RKLLMResult *result, LLMCallState state) {
#if RKLLM_ABI >= 121
    return run->callback(result, run->userdata, state);
#else
    run->callback(result, run->userdata, state);
    return 0;
#endif
}

/* Gives len bytes of text (or NULL) and an id to the callback, then poisons everything it saw. */
static int give(struct model *m, const RKLLMResult *content, const char *text, size_t len, LLMCallState state) {
    struct run *run = &m->run;
    size_t room;
    RKLLMResult *result = mem_alloc(sizeof *result);
    char *copy = own_text(text, len, &room);
    *result = *content;
    result->text = copy;
    int wish = invoke(run, result, state);
    memset(result, POISON, sizeof *result);
    free(result);
    deliver_release(run);
    if (copy) memset(copy, POISON, room - 1);
    run->stale_text = copy;
    return wish;
}

/* Does what a callback wishes, as far as this family knows it. Returns true when the run is to pause. */
static bool understood(struct run *run, int wish) {
    if (wish == 1 && run->keep_history) {
        console_line('W', "the callback returned 1, but a run that keeps its history cannot be paused!");
        return false;
    }
    if (wish == 2 && RKLLM_ABI >= 130) deliver_release(run);
    return wish == 1;
}

/* Tells the callback of one token and returns true when it wants a pause. Bytes that stop inside a character are
 * held: the call is WAITING then, and the text comes with the next NORMAL one. A special token is passed over when
 * the model was opened with skip_special_token. */
bool deliver_token(struct model *m, int32_t id, bool special) {
    struct run *run = &m->run;
    RKLLMResult result = {.token_id = id};
    size_t len;
    const char *text = vocabulary_text(m->script->vocabulary, id, &len);
    if (special && m->settings.skip_special) {
        if (run->faults.skipped == SKIPPED_SILENTLY) return false;
        return understood(run, give(m, &result, run->faults.skipped == SKIPPED_AS_NULL ? NULL : "", 0,
                                    RKLLM_RUN_NORMAL));
    }
    run->delivered++;
    buf_put(&run->held, text, len);
    if (utf8_ends_inside_character(run->held.data, run->held.len)) {
        run->waiting++;
        return understood(run, give(m, &result, NULL, 0, RKLLM_RUN_WAITING));
    }
    bool null_text = run->delivered == run->faults.null_text_at;
    int wish = give(m, &result, null_text ? NULL : run->held.data, run->held.len, RKLLM_RUN_NORMAL);
    buf_clear(&run->held);
    return understood(run, wish);
}

/* Makes the last call of a run, with the figures when it ended well. */
void deliver_end(struct model *m, LLMCallState state) {
    struct run *run = &m->run;
    RKLLMResult result = {.token_id = -1};
#if RKLLM_ABI >= 121
    if (state == RKLLM_RUN_FINISH) {
        result.perf.prefill_time_ms = (float)run->prefill_ms;
        result.perf.prefill_tokens = (int)run->prefilled;
        result.perf.generate_time_ms = (float)run->generate_ms;
        result.perf.generate_tokens = (int)run->sampled.len;
        result.perf.memory_usage_mb = (float)peak_memory_mb();
    }
#endif
    bool null_text = state == RKLLM_RUN_ERROR || run->faults.finish_text_null;
    give(m, &result, null_text ? NULL : "", 0, state);
}
