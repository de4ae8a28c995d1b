/* prepare.c: makes a run of the arguments of rkllm_run: which tokens the model will see, how many of them the KV cache
 * already holds, and what the script answers. */

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "console.h"
#include "model.h"
#include "prompt_view.h"

/* Empties an entry's part of a run; its cache and its memory stay. */
static void clear_entry(struct sequence *entry) {
    ids_free(&entry->prompt);
    ids_free(&entry->answer);
    ids_free(&entry->sampled);
    buf_free(&entry->held);
    token_values_free(&entry->values);
    free(entry->rows);
    entry->rows = NULL;
    entry->rule = NULL;
    entry->reused = entry->prefilled = entry->pictures = entry->next = 0;
    entry->ended = false;
}

/* Frees everything the run owns and makes it empty. */
void run_clear(struct model *m) {
    for (int i = 0; i < m->batch_size; i++) clear_entry(&m->batch[i]);
    free(m->run.save_path);
    deliver_release(&m->run);
    m->run = (struct run){.lora = -1, .abort_noticed = -1};
}

/* Returns the number of the adapter of that name; -1 when none was loaded under it. */
static int find_lora(const struct model *m, const char *name) {
    for (size_t i = 0; i < m->lora_count; i++)
        if (name && strcmp(m->loras[i], name) == 0) return (int)i;
    return -1;
}

/* Checks what does not depend on the text: mode and adapter. */
static bool check_infer(const struct model *m, const RKLLMInferParam *infer) {
    if (!infer) {
        console_line('E', "the inference parameters are NULL!");
        return false;
    }
    if ((int)infer->mode < RKLLM_INFER_GENERATE || (int)infer->mode > RKLLM_INFER_GET_LOGITS) {
        console_line('E', "inference mode %d is not known!", (int)infer->mode);
        return false;
    }
    if (infer->mode == RKLLM_INFER_GET_LOGITS && m->batch_size > 1) {
        console_line('E', "Getting the logits is not supported for multiple batches.");
        return false;
    }
    if (infer->lora_params && find_lora(m, infer->lora_params->lora_adapter_name) < 0) {
        const char *name = infer->lora_params->lora_adapter_name;
        console_line('E', "not found adapter named %s", name ? name : "(null)");
        return false;
    }
    return true;
}

/* Checks every input of the batch. */
static bool check_inputs(const struct model *m, const RKLLMInput *inputs) {
    if (!inputs) console_line('E', "the input is NULL!");
    bool good = inputs != NULL;
    for (int i = 0; i < m->batch_size && good; i++) good = input_check(m, &inputs[i]);
    return good;
}

/* Refuses a run that does not fit, in the way the faults ask for. Always false. */
static bool refuse_length(struct model *m) {
    if (m->run.faults.over_long == REFUSE_BY_CRASH) {
        call_log_end_unreturned(m->run.log);
        fault_die(SIGSEGV);
    }
    if (m->run.faults.over_long == REFUSE_BY_CALLBACK) deliver_end(m, RKLLM_RUN_ERROR);
    return false;
}

/* Makes room for count new tokens after the history, dropping old entries when they do not fit. */
static bool make_room(struct model *m, struct sequence *entry, size_t count) {
    struct kv_cache *kv = &entry->kv;
    size_t history = kv->ids.len + (entry->history.pending >= 0 ? 1 : 0);
    if (history + count <= kv->capacity) return true;
    size_t keep = m->settings.n_keep >= 0 ? (size_t)m->settings.n_keep : entry->system_tokens;
    size_t room = keep < kv->ids.len ? (kv->ids.len - keep) / 2 : 0;
    if (history - room + count > kv->capacity) {
        console_line('E', "the context is not enough! history_s: %zu, cur_input_s: %zu, discard_s: %zu, "
                          "max_context: %zu!", history, count, room, kv->capacity);
        return refuse_length(m);
    }
    pthread_mutex_lock(&m->lock);
    size_t before = kv->ids.len, dropped = kv_shift(kv, keep);
    pthread_mutex_unlock(&m->lock);
    console_line('W', "context to be full[%zu + %zu], delete the kv cache in [%zu, %zu), total: %zu", before, count,
                 keep, keep + dropped, kv->ids.len);
    return true;
}

/* True when the run goes on after what the entry's cache holds, whatever the input is. */
static bool goes_on(const struct model *m, const struct sequence *entry) {
    bool stale = m->faults.hidden_needs_clear && m->run.mode != RKLLM_INFER_GENERATE && entry->kv.ids.len;
    return stale || (entry->history.kept && (m->run.keep_history || m->faults.history_stays));
}

/* Checks that the new tokens fit, and begins the prompt with what is before them. */
static bool begin_prompt(struct model *m, struct sequence *entry, size_t fresh, bool behind_turns) {
    if (behind_turns) ids_append(&entry->prompt, entry->transcript.data, entry->transcript.len);
    size_t whole = entry->prompt.len + fresh;
    if (!fresh) {
        console_line('E', "the prompt is empty!");
        return false;
    }
    if (whole > entry->kv.capacity) {
        console_line('E', "the length of prompt is greater than max context (prompt: %zu tokens, max context: %zu)",
                     whole, entry->kv.capacity);
        return refuse_length(m);
    }
    if (!goes_on(m, entry)) return true;
    if (!make_room(m, entry, fresh)) return false;
    ids_append(&entry->prompt, entry->kv.ids.data, entry->kv.ids.len);
    if (entry->history.pending >= 0) ids_put(&entry->prompt, entry->history.pending);
    return true;
}

/* Finds out how much of the prompt need not be evaluated: what the cache or a loaded file begins with, made with the
 * same adapter. */
static void find_reused(const struct model *m, struct sequence *entry) {
    const struct ids *prompt = &entry->prompt;
    enum full_match full = (enum full_match)m->faults.full_match;
    size_t in_cache = 0, in_file = 0;
    if (m->cache_lora == m->run.lora) in_cache = kv_reusable(&entry->kv.ids, prompt->data, prompt->len, full);
    if (m->run.lora < 0) in_file = kv_reusable(&m->loaded, prompt->data, prompt->len, full);
    if (m->faults.reuse == REUSE_OFF && entry->history.kept && in_cache > model_system_part(m, entry))
        in_cache = model_system_part(m, entry);
    entry->reused = in_cache > in_file ? in_cache : in_file;
}

/* Puts together what the model sees: the history when it is kept, the turns before a tool result, what is new. */
static bool assemble(struct model *m, struct sequence *entry, const RKLLMInput *input) {
    bool behind_history = goes_on(m, entry);
    bool behind_turns = !behind_history && chat_is_tool_input(input) && entry->transcript.len;
    struct buf text = {0};
    struct ids fresh = {0};
    bool good = input_read(m, input, behind_history || behind_turns, &text, entry, &fresh);
    if (text.len && m->console_level >= CONSOLE_DETAILS) console_quoted("prompt text", buf_text(&text));
    buf_free(&text);
    good = good && begin_prompt(m, entry, fresh.len, behind_turns);
    if (good) {
        ids_append(&entry->prompt, fresh.data, fresh.len);
        find_reused(m, entry);
    }
    ids_free(&fresh);
    return good;
}

/* Remembers how much of a fresh prompt is the system part of the template. */
static void measure_system(struct model *m, struct sequence *entry, const RKLLMInput *input) {
    const char *system = chat_system(m);
    struct ids ids = {0};
    if (goes_on(m, entry)) return;
    if (input->input_type == RKLLM_INPUT_PROMPT || input->input_type == RKLLM_INPUT_MULTIMODAL)
        host_encode(m, system, strlen(system), &ids);
    entry->system_tokens = kv_match(&entry->prompt, ids.data, ids.len);
    ids_free(&ids);
}

/* Returns the position from which on pictures are noise: with a fault, those that are new to a cache with pictures. */
static size_t noisy_from(const struct model *m, const struct sequence *entry) {
    for (size_t i = 0; m->faults.stale_pictures && i < entry->kv.ids.len; i++)
        if (entry->kv.ids.data[i] < 0) return entry->reused;
    return SIZE_MAX;
}

/* Puts the wrong text of the faults before a token of the answer, counted from its beginning in the prompt on. */
static void mislead(struct model *m, struct sequence *entry, const char *begun) {
    const struct faults *faults = &m->run.faults;
    struct ids before = {0}, answer = {0};
    vocabulary_encode(m->script->vocabulary, begun, strlen(begun), NULL, &before);
    size_t at = (size_t)faults->wrong_at - before.len;
    bool is_here = faults->wrong_at >= (long)before.len && at <= entry->answer.len;
    ids_free(&before);
    if (m->wrong_rule != entry->rule) m->wrong_count = 0;
    m->wrong_rule = entry->rule;
    if (!is_here || m->wrong_count >= faults->wrong_times) return;
    m->wrong_count++;
    ids_append(&answer, entry->answer.data, at);
    vocabulary_encode(m->script->vocabulary, faults->wrong_text, strlen(faults->wrong_text), NULL, &answer);
    ids_append(&answer, entry->answer.data + at, entry->answer.len - at);
    ids_free(&entry->answer);
    entry->answer = answer;
}

/* Lets the script answer, and applies the faults of the rule it chose. Weights answer token by token, later. */
static void choose_answer(struct model *m, struct sequence *entry) {
    if (m->weights) return;
    struct run *run = &m->run;
    struct prompt_view view;
    struct buf ignored = {0};
    const char *lora = run->lora < 0 ? NULL : m->loras[run->lora];
    prompt_view_read(&view, m->script, &entry->prompt, m->pictures, noisy_from(m, entry));
    entry->rule = answer_compose(m->script, &view, lora, &entry->answer, &entry->values);
    for (size_t i = 0; entry->rule && i < entry->rule->fault_count; i++)
        faults_apply(&run->faults, FAULTS_OF_RULE, entry->rule->faults[i], &ignored);
    if (run->faults.wrong_at != FAULT_NEVER) mislead(m, entry, view.begun);
    prompt_view_free(&view);
    buf_free(&ignored);
}

/* Fills the run's own options from the call. */
static void read_options(struct model *m, const RKLLMInferParam *infer) {
    struct run *run = &m->run;
    run->mode = infer->mode;
    run->keep_history = infer->keep_history != 0;
    run->lora = infer->lora_params ? find_lora(m, infer->lora_params->lora_adapter_name) : -1;
    run->max_new_tokens = m->settings.max_new_tokens;
    run->sampling = m->settings.sampling;
#if RKLLM_ABI >= 130
    const RKLLMSamplingParam *s = infer->sampling_params;
    if (s)
        run->sampling = (struct sampling){s->top_k,          s->top_p,             s->temperature,
                                          s->repeat_penalty, s->frequency_penalty, s->presence_penalty};
    if (infer->max_new_tokens > 0) run->max_new_tokens = infer->max_new_tokens;
#endif
    if (run->max_new_tokens <= 0) run->max_new_tokens = INT_MAX;
    const RKLLMPromptCacheParam *cache = infer->prompt_cache_params;
    if (cache && cache->save_prompt_cache)
        run->save_path = mem_string(cache->prompt_cache_path ? cache->prompt_cache_path : "./prompt_cache.bin");
}

/* True when a paused run is to go on; else leaves the paused state, if it is in it. */
static bool resumes(struct model *m) {
    pthread_mutex_lock(&m->lock);
    bool resumed = m->paused && m->faults.leave_pause != PAUSE_LEFT_BY_RUN;
    m->paused = false;
    pthread_mutex_unlock(&m->lock);
    return resumed;
}

/* Makes m->run from the arguments of a call, or takes up a paused run and ignores them. Returns false, with a line
 * printed, when the call has to be refused; the model is claimed by the caller either way. */
bool run_prepare(struct model *m, const RKLLMInput *inputs, const RKLLMInferParam *infer, void *userdata) {
    struct run *run = &m->run;
    struct call_log *log = run->log;
    if (!userdata) userdata = m->host.userdata;
    if (resumes(m)) {
        run->resumed = true;
        run->userdata = userdata;
        run->abort_noticed = -1;
        run->end = RUN_GOING;
        return true;
    }
    run_clear(m);
    run->log = log;
    run->userdata = userdata;
    run->faults = m->faults;
    if (!check_inputs(m, inputs) || !check_infer(m, infer)) return false;
    read_options(m, infer);
    for (int i = 0; i < m->batch_size; i++) {
        struct sequence *entry = &m->batch[i];
        if (!assemble(m, entry, &inputs[i])) return false;
        measure_system(m, entry, &inputs[i]);
        choose_answer(m, entry);
    }
    report_prompt(m);
    return true;
}
