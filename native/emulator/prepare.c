/* prepare.c: checks the arguments of rkllm_run and makes a run of them: which tokens the model will see, how many
 * of them the KV cache already holds, and what the script answers. */

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "console.h"
#include "model.h"
#include "prompt_view.h"

/* Frees everything a run owns and makes it empty. */
void run_clear(struct run *run) {
    free(run->save_path);
    ids_free(&run->prompt);
    ids_free(&run->answer);
    ids_free(&run->sampled);
    buf_free(&run->held);
    deliver_release(run);
    *run = (struct run){0};
}

/* True when an adapter of that name was loaded. */
static bool has_lora(const struct model *m, const char *name) {
    for (size_t i = 0; i < m->lora_count; i++)
        if (name && strcmp(m->loras[i], name) == 0) return true;
    return false;
}

/* Checks what does not depend on the text: mode and adapter. */
static bool check_infer(const struct model *m, const RKLLMInferParam *infer) {
    if (!infer) {
        console_line('E', "the inference parameters are NULL!");
        return false;
    }
    if (infer->mode != RKLLM_INFER_GENERATE) {
        console_line('E', "inference mode %d is not supported by this emulated model!", (int)infer->mode);
        return false;
    }
    if (infer->lora_params && !has_lora(m, infer->lora_params->lora_adapter_name)) {
        const char *name = infer->lora_params->lora_adapter_name;
        console_line('E', "not found adapter named %s", name ? name : "(null)");
        return false;
    }
    return true;
}

/* Checks an image input, then says that the emulator has no eyes. */
static bool refuse_multimodal(const RKLLMMultiModalInput *input) {
    if (!input->prompt || !strstr(input->prompt, "<image>"))
        console_line('E', "multimodal input must contain the <image> tag, for plain text input, "
                          "please use prompt_input");
    else
        console_line('E', "multimodal input is not supported by this emulated model!");
    return false;
}

/* Checks the kind of input and that it holds something. */
static bool check_input(const struct model *m, const RKLLMInput *input) {
    if (!input) {
        console_line('E', "the input is NULL!");
        return false;
    }
    switch (input->input_type) {
    case RKLLM_INPUT_PROMPT:
        if (!input->prompt_input) console_line('E', "the prompt input is NULL!");
        return input->prompt_input != NULL;
    case RKLLM_INPUT_TOKEN:
        if (!input->token_input.input_ids || !input->token_input.n_tokens) {
            console_line('E', "the token input is empty!");
            return false;
        }
        for (size_t i = 0; i < input->token_input.n_tokens; i++)
            if (!vocabulary_has(m->script->vocabulary, input->token_input.input_ids[i])) {
                console_line('E', "token id %d at position %zu is outside the vocabulary of %zu!",
                             input->token_input.input_ids[i], i, vocabulary_size(m->script->vocabulary));
                return false;
            }
        return true;
    case RKLLM_INPUT_EMBED:
        if (!input->embed_input.embed || !input->embed_input.n_tokens)
            console_line('E', "the embedding input is empty!");
        else
            console_line('E', "embedding input is not supported by this emulated model!");
        return false;
    case RKLLM_INPUT_MULTIMODAL: return refuse_multimodal(&input->multimodal_input);
    }
    console_line('E', "input type %d is not known!", (int)input->input_type);
    return false;
}

/* Appends the ids of an input. A PROMPT is put into the template first; its text is kept in text. */
static void read_tokens(struct model *m, const RKLLMInput *input, bool continues, struct buf *text, struct ids *out) {
    if (input->input_type == RKLLM_INPUT_TOKEN) {
        ids_append(out, input->token_input.input_ids, input->token_input.n_tokens);
        return;
    }
    chat_render(m, input, continues, text);
    vocabulary_encode(m->script->vocabulary, buf_text(text), text->len, NULL, out);
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

/* Makes room for count new tokens behind the history, dropping old entries when they do not fit. */
static bool make_room(struct model *m, size_t count) {
    struct kv_cache *kv = &m->kv;
    size_t history = kv->ids.len + (m->history.pending >= 0 ? 1 : 0);
    if (history + count <= kv->capacity) return true;
    size_t keep = m->settings.n_keep >= 0 ? (size_t)m->settings.n_keep : m->system_tokens;
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

/* Puts together what the model sees: the history when it is kept, the turns before a tool result, what is new. */
static bool assemble(struct model *m, const RKLLMInput *input) {
    struct run *run = &m->run;
    bool behind_history = run->keep_history && m->history.kept;
    bool behind_turns = !behind_history && chat_is_tool_input(input) && m->chat.transcript.len;
    struct buf text = {0};
    struct ids fresh = {0};
    read_tokens(m, input, behind_history || behind_turns, &text, &fresh);
    if (text.len && m->console_level >= CONSOLE_DETAILS) console_escaped("prompt text", buf_text(&text));
    buf_free(&text);
    bool fits = fresh.len > 0;
    if (!fits) console_line('E', "the prompt is empty!");
    if (behind_turns) ids_append(&run->prompt, m->chat.transcript.data, m->chat.transcript.len);
    size_t whole = run->prompt.len + fresh.len;
    if (fits && whole > m->kv.capacity) {
        console_line('E', "the length of prompt is greater than max context (prompt: %zu tokens, max context: %zu)",
                     whole, m->kv.capacity);
        fits = refuse_length(m);
    }
    if (fits && behind_history) fits = make_room(m, fresh.len);
    if (fits && behind_history) {
        ids_append(&run->prompt, m->kv.ids.data, m->kv.ids.len);
        run->reused = run->prompt.len;
        if (m->history.pending >= 0) ids_put(&run->prompt, m->history.pending);
    }
    ids_append(&run->prompt, fresh.data, fresh.len);
    if (!behind_history) run->reused = kv_reusable(&m->kv, run->prompt.data, run->prompt.len);
    ids_free(&fresh);
    return fits;
}

/* Remembers how much of a fresh prompt is the system part of the template. */
static void measure_system(struct model *m, const RKLLMInput *input) {
    const char *system = chat_system(m);
    struct ids ids = {0};
    if (m->run.keep_history && m->history.kept) return;
    if (input->input_type == RKLLM_INPUT_PROMPT)
        vocabulary_encode(m->script->vocabulary, system, strlen(system), NULL, &ids);
    struct kv_cache prompt = {.ids = m->run.prompt};
    m->system_tokens = kv_match(&prompt, ids.data, ids.len);
    ids_free(&ids);
}

/* Lets the script answer, and applies the faults of the rule it chose. */
static void choose_answer(struct model *m) {
    struct run *run = &m->run;
    struct prompt_view view;
    struct buf ignored = {0};
    prompt_view_read(&view, m->script, &run->prompt);
    run->rule = answer_compose(m->script, &view, &run->answer);
    for (size_t i = 0; run->rule && i < run->rule->fault_count; i++)
        faults_apply(&run->faults, FAULTS_OF_RULE, run->rule->faults[i], &ignored);
    prompt_view_free(&view);
    buf_free(&ignored);
}

/* Fills the run's own options from the call. */
static void read_options(struct model *m, const RKLLMInferParam *infer) {
    struct run *run = &m->run;
    run->keep_history = infer->keep_history != 0;
    run->max_new_tokens = m->settings.max_new_tokens;
#if RKLLM_ABI >= 130
    if (infer->max_new_tokens > 0) run->max_new_tokens = infer->max_new_tokens;
#endif
    if (run->max_new_tokens <= 0) run->max_new_tokens = INT_MAX;
    const RKLLMPromptCacheParam *cache = infer->prompt_cache_params;
    if (cache && cache->save_prompt_cache)
        run->save_path = mem_string(cache->prompt_cache_path ? cache->prompt_cache_path : "./prompt_cache.bin");
}

/* Makes m->run from the arguments of a call, or takes up a paused run and ignores them. Returns false, with a line
 * printed, when the call has to be refused; the model is claimed by the caller either way. */
bool run_prepare(struct model *m, const RKLLMInput *input, const RKLLMInferParam *infer, void *userdata) {
    struct run *run = &m->run;
    struct call_log *log = run->log;
    if (!userdata) userdata = m->callback_userdata;
    if (m->paused) {
        m->paused = false;
        run->resumed = true;
        run->userdata = userdata;
        return true;
    }
    run_clear(run);
    *run = (struct run){.callback = m->callback, .userdata = userdata, .faults = m->faults, .log = log};
    if (!check_input(m, input) || !check_infer(m, infer)) return false;
    read_options(m, infer);
    if (!assemble(m, input)) return false;
    measure_system(m, input);
    choose_answer(m);
    report_prompt(m);
    return true;
}
