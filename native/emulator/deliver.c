/* deliver.c: what a result callback is given, and how it dies.
 *
 * Every callback gets its own structs, texts and numbers. When it returns, all are overwritten with a pattern; the
 * structs are freed at once, texts and numbers one callback later. A binding that keeps a pointer reads the pattern
 * (which is not UTF-8, no address and no sensible number) instead of something that happens to work. */

#include <stdlib.h>
#include <string.h>

#include "console.h"
#include "model.h"
#include "utf8.h"

/* Bytes that no text and no pointer consists of. */
#define POISON 0xa5

/* Text smaller than this is padded, so that the pattern can be recognised. */
#define SMALLEST_TEXT 8

/* What one entry of the batch is told. */
struct news {
    int32_t id;
    const char *text; /* NULL is allowed */
    size_t len;
    const float *numbers; /* rows of width; NULL when none exist */
    size_t rows, width;
};

/* Frees what the last callback was given. */
void deliver_release(struct run *run) {
    free(run->stale);
    run->stale = NULL;
}

static size_t room_of_text(const struct news *news) {
    return !news->text ? 0 : news->len + 1 < SMALLEST_TEXT ? SMALLEST_TEXT : news->len + 1;
}

static size_t room_of_numbers(const struct news *news) {
    return news->numbers ? news->rows * news->width * sizeof(float) : 0;
}

/* Calls the callback and returns what it wishes: 0 go on, 1 pause, 2 drop the output buffer. */
static int invoke(struct model *m, RKLLMResult *results, LLMCallState state) {
    if (m->run.async && m->run.faults.run_async == ASYNC_IS_SILENT) return 0;
    if (state == RKLLM_RUN_NORMAL) call_log_callback();
#if RKLLM_ABI >= 121
    return m->host.callback(results, m->run.userdata, state);
#else
    m->host.callback(results, m->run.userdata, state);
    return 0;
#endif
}

/* Fills one result, its text and numbers copied to memory; returns where the next may begin. */
static char *fill(RKLLMResult *result, const struct news *news, RKLLMInferMode mode, char *memory) {
    size_t numbers = room_of_numbers(news), text = room_of_text(news);
    result->token_id = news->id;
    if (numbers) {
        const float *copy = memcpy(memory, news->numbers, numbers);
        if (mode == RKLLM_INFER_GET_LOGITS)
            result->logits = (RKLLMResultLogits){copy, (int)news->width, (int)news->rows};
        else
            result->last_hidden_layer = (RKLLMResultLastHiddenLayer){copy, (int)news->width, (int)news->rows};
    }
    if (news->text) {
        result->text = memory + numbers;
        if (news->len) memcpy(memory + numbers, news->text, news->len);
    }
    /* The next entry's numbers have to be aligned. */
    return memory + numbers + (text + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}

/* Tells the callback the news of count entries, then poisons everything it saw. perf goes with the first result. */
static int give(struct model *m, const struct news *news, int count, const RKLLMResult *perf, LLMCallState state) {
    struct run *run = &m->run;
    size_t room = sizeof(float);
    for (int i = 0; i < count; i++) room += room_of_numbers(&news[i]) + room_of_text(&news[i]) + sizeof(float);
    RKLLMResult *results = mem_alloc((size_t)count * sizeof *results);
    char *memory = mem_alloc(room), *at = memory;
    if (perf) *results = *perf;
    for (int i = 0; i < count; i++) at = fill(&results[i], &news[i], run->mode, at);
    int wish = invoke(m, results, state);
    memset(results, POISON, (size_t)count * sizeof *results);
    free(results);
    deliver_release(run);
    memset(memory, POISON, room - 1);
    run->stale = memory;
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

/* Returns the text of a token; "" when the model has no tokenizer to say it with. */
static const char *text_of(const struct model *m, int32_t id, size_t *len) {
    const char *text = vocabulary_text(m->script->vocabulary, id, len);
    if (m->script->lacks_tokenizer) *len = 0;
    return text;
}

static bool is_skipped(const struct model *m, int32_t id) {
    bool eos = false;
    for (size_t i = 0; i < m->script->eos.len; i++) eos = eos || m->script->eos.data[i] == id;
    return m->settings.skip_special && (eos || vocabulary_is_special(m->script->vocabulary, id));
}

/* Tells of a token of the only entry. Bytes that stop inside a character are held: the call is WAITING then, and the
 * text comes with the next NORMAL one. A special token is passed over when the model was opened so. */
static bool deliver_alone(struct model *m, struct sequence *entry) {
    struct run *run = &m->run;
    struct news news = {.id = entry->sampled.data[entry->sampled.len - 1]};
    size_t len;
    const char *text = text_of(m, news.id, &len);
    if (is_skipped(m, news.id)) {
        if (run->faults.skipped == SKIPPED_SILENTLY) return false;
        if (run->faults.skipped == SKIPPED_AS_EMPTY) news.text = "";
        return understood(run, give(m, &news, 1, NULL, RKLLM_RUN_NORMAL));
    }
    run->delivered++;
    buf_put(&entry->held, text, len);
    if (utf8_ends_inside_character(entry->held.data, entry->held.len)) {
        run->waiting++;
        return understood(run, give(m, &news, 1, NULL, RKLLM_RUN_WAITING));
    }
    if (run->delivered != run->faults.null_text_at) {
        news.text = buf_text(&entry->held);
        news.len = entry->held.len;
    }
    int wish = give(m, &news, 1, NULL, RKLLM_RUN_NORMAL);
    buf_clear(&entry->held);
    return understood(run, wish);
}

/* Says what an entry of a batch has new: nothing and no id once it has ended, no text while a character is open. */
static struct news news_of(struct model *m, struct sequence *entry) {
    struct news news = {.id = -1};
    size_t len;
    if (entry->ended) return news;
    news.id = entry->sampled.data[entry->sampled.len - 1];
    news.text = "";
    if (is_skipped(m, news.id)) return news;
    const char *text = text_of(m, news.id, &len);
    buf_put(&entry->held, text, len);
    if (utf8_ends_inside_character(entry->held.data, entry->held.len)) return news;
    news.text = buf_text(&entry->held);
    news.len = entry->held.len;
    return news;
}

/* Tells of the tokens just sampled, one per entry that has not ended. Returns true when the callback wants a pause. */
bool deliver_step(struct model *m) {
    if (m->batch_size == 1) return deliver_alone(m, &m->batch[0]);
    struct news *news = mem_alloc((size_t)m->batch_size * sizeof *news);
    for (int i = 0; i < m->batch_size; i++) news[i] = news_of(m, &m->batch[i]);
    m->run.delivered++;
    int wish = give(m, news, m->batch_size, NULL, RKLLM_RUN_NORMAL);
    for (int i = 0; i < m->batch_size; i++)
        if (news[i].len) buf_clear(&m->batch[i].held);
    free(news);
    return understood(&m->run, wish);
}

/* Returns the first token that a run delivers a row for: all it evaluates have one, or only the last. */
size_t rows_begin(const struct model *m, const struct sequence *entry) {
    const struct run *run = &m->run;
    size_t count = entry->prompt.len;
    bool last = run->mode == RKLLM_INFER_GET_LOGITS ? run->faults.logits_last_row : run->faults.hidden_last_row;
    return last || entry->reused >= count ? count - 1 : entry->reused;
}

static size_t row_width(const struct model *m) {
    bool logits = m->run.mode == RKLLM_INFER_GET_LOGITS;
    return logits ? vocabulary_size(m->script->vocabulary) : (size_t)m->script->hidden;
}

/* Gives an entry the memory for its rows, which lives as long as the run's, and returns it. */
float *rows_create(const struct model *m, struct sequence *entry) {
    free(entry->rows);
    entry->rows = mem_alloc((entry->prompt.len - rows_begin(m, entry)) * row_width(m) * sizeof *entry->rows);
    return entry->rows;
}

/* Returns the rows of an entry, computed here unless its weights have. */
static struct news rows_of(const struct model *m, struct sequence *entry) {
    bool logits = m->run.mode == RKLLM_INFER_GET_LOGITS;
    size_t count = entry->prompt.len, width = row_width(m), from = rows_begin(m, entry);
    if (m->weights) {
        int32_t likeliest = logits ? sampling_best(entry->rows + (count - from - 1) * width, width) : -1;
        return (struct news){.id = likeliest, .text = "", .numbers = entry->rows, .rows = count - from, .width = width};
    }
    float *rows = rows_create(m, entry);
    int32_t next = entry->answer.len ? entry->answer.data[0] : m->script->eos.data[0];
    if (logits)
        values_logits(entry->prompt.data, count, width, from, next, &entry->values, rows);
    else
        values_hidden(m->script->vocabulary, entry->prompt.data, count, width, from, rows);
    return (struct news){.id = next, .text = "", .numbers = rows, .rows = count - from, .width = width};
}

/* Makes the callbacks of a run that asked for hidden states or logits: one without data where the runtime was seen to
 * do so (rknn-llm #278), then one with. Returns true when the callback wants to stop here. */
bool deliver_rows(struct model *m) {
    struct run *run = &m->run;
    struct news *news = mem_alloc((size_t)m->batch_size * sizeof *news);
    bool stopped = false;
    for (int i = 0; i < m->batch_size; i++) news[i] = (struct news){.id = -1, .text = ""};
    if (!run->faults.one_hidden_callback)
        stopped = understood(run, give(m, news, m->batch_size, NULL, RKLLM_RUN_NORMAL));
    if (!stopped) {
        for (int i = 0; i < m->batch_size; i++) news[i] = rows_of(m, &m->batch[i]);
        stopped = understood(run, give(m, news, m->batch_size, NULL, RKLLM_RUN_NORMAL));
        run->delivered++;
    }
    free(news);
    return stopped;
}

/* Makes the last call of a run, with the figures when it ended well. */
void deliver_end(struct model *m, LLMCallState state) {
    struct run *run = &m->run;
    RKLLMResult result = {.token_id = -1};
    struct news *news = mem_alloc((size_t)m->batch_size * sizeof *news);
    bool null_text = state == RKLLM_RUN_ERROR || run->faults.finish_text_null;
    for (int i = 0; i < m->batch_size; i++) news[i] = (struct news){.id = -1, .text = null_text ? NULL : ""};
#if RKLLM_ABI >= 121
    if (state == RKLLM_RUN_FINISH) {
        size_t prefilled = 0;
        for (int i = 0; i < m->batch_size; i++) prefilled += m->batch[i].prefilled;
        result.perf.prefill_time_ms = (float)run->prefill_ms;
        result.perf.prefill_tokens = (int)prefilled;
        result.perf.generate_time_ms = (float)run->generate_ms;
        result.perf.generate_tokens = (int)run->steps;
        result.perf.memory_usage_mb = (float)peak_memory_mb();
    }
#endif
    give(m, news, m->batch_size, &result, state);
    free(news);
}
