/* api_state.c: the functions of the interface that change or ask what a handle keeps between runs: KV cache, prompt
 * cache, chat template, tools, adapters; and the exports of the real library that its header does not declare. */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api.h"
#include "console.h"
#include "script_words.h"

/* See the header. What an adapter does is up to the script: rules can ask for one by its name. */
int rkllm_load_lora(LLMHandle handle, RKLLMLoraAdapter *adapter) {
    struct call_log log;
    struct model *m = api_enter(&log, "rkllm_load_lora", handle);
    const char *path = adapter ? adapter->lora_adapter_path : NULL;
    const char *name = adapter ? adapter->lora_adapter_name : NULL;
    call_log_text(&log, "lora_adapter_path", path);
    call_log_text(&log, "lora_adapter_name", name);
    call_log_number(&log, "scale", adapter ? adapter->scale : 0);
    if (!m || !model_begin_change(m, "rkllm_load_lora")) return api_leave(&log, -1);
    bool known = false, good = false;
    for (size_t i = 0; name && i < m->lora_count; i++) known = known || strcmp(m->loras[i], name) == 0;
    if (!path || !name || access(path, R_OK) != 0)
        console_line('E', "lora adapter path '%s' does not exist", path ? path : "(null)");
    else if (known)
        console_line('E', "lora adapter %s is already initialized", name);
    else if (m->weights)
        console_line('E', "the emulator cannot put an adapter on real weights");
    else
        good = true;
    if (good) words_push(&m->loras, &m->lora_count, name);
    model_end_change(m);
    return api_leave(&log, good ? 0 : -1);
}

/* See the header. A second file is refused until the first was released. */
int rkllm_load_prompt_cache(LLMHandle handle, const char *path) {
    struct call_log log;
    struct model *m = api_enter(&log, "rkllm_load_prompt_cache", handle);
    call_log_text(&log, "prompt_cache_path", path);
    if (!m || !model_begin_change(m, "rkllm_load_prompt_cache")) return api_leave(&log, -1);
    bool good = !m->loaded.len;
    if (!good) console_line('E', "a prompt cache is loaded already, release it first!");
    good = good && prompt_cache_load(m, path);
    model_end_change(m);
    return api_leave(&log, good ? 0 : -1);
}

/* See the header. Tokens already in the KV cache stay there; releasing nothing is not an error. */
int rkllm_release_prompt_cache(LLMHandle handle) {
    struct call_log log;
    struct model *m = api_enter(&log, "rkllm_release_prompt_cache", handle);
    if (!m || !model_begin_change(m, "rkllm_release_prompt_cache")) return api_leave(&log, -1);
    ids_truncate(&m->loaded, 0);
    if (m->weights) weights_release(m->weights);
    model_end_change(m);
    return api_leave(&log, 0);
}

#if RKLLM_ABI >= 121
/* Clears [start, end) of every entry of a paused run; false, with the documented line, when that is not allowed. */
static bool clear_ranges(struct model *m, const int *start, const int *end) {
    if (!m->paused) {
        console_line('E', "start_pos and end_pos are only valid when keep_history == 0 and the generation has been "
                          "paused by returning 1 in the callback!");
        return false;
    }
    for (int i = 0; i < m->batch_size; i++) {
        size_t size = m->batch[i].kv.ids.len;
        if (start && end && start[i] >= 0 && end[i] >= start[i] && (size_t)end[i] <= size) continue;
        console_line('E', "start_pos and end_pos are not a range of the kv cache of %zu!", size);
        return false;
    }
    for (int i = 0; i < m->batch_size; i++) ids_remove(&m->batch[i].kv.ids, (size_t)start[i], (size_t)end[i]);
    return true;
}

/* See the header. */
int rkllm_clear_kv_cache(LLMHandle handle, int keep_system_prompt, int *start_pos, int *end_pos) {
    struct call_log log;
    struct model *m = api_enter(&log, "rkllm_clear_kv_cache", handle);
    call_log_number(&log, "keep_system_prompt", keep_system_prompt);
    call_log_ids(&log, "start_pos", start_pos, m ? (size_t)m->batch_size : 0);
    call_log_ids(&log, "end_pos", end_pos, m ? (size_t)m->batch_size : 0);
    if (!m || !model_begin_change(m, "rkllm_clear_kv_cache")) return api_leave(&log, -1);
    bool good = true;
    if (start_pos || end_pos)
        good = clear_ranges(m, start_pos, end_pos);
    else
        model_forget(m, keep_system_prompt != 0);
    model_end_change(m);
    return api_leave(&log, good ? 0 : -1);
}

/* See the header. May be asked while a run is active. */
int rkllm_get_kv_cache_size(LLMHandle handle, int *cache_sizes) {
    struct call_log log;
    struct model *m = api_enter(&log, "rkllm_get_kv_cache_size", handle);
    if (!m || !cache_sizes) return api_leave(&log, -1);
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < m->batch_size; i++) cache_sizes[i] = (int)m->batch[i].kv.ids.len;
    pthread_mutex_unlock(&m->lock);
    call_log_number(&log, "wrote", *cache_sizes);
    if (m->batch_size > 1) call_log_ids(&log, "wrote_all", cache_sizes, (size_t)m->batch_size);
    return api_leave(&log, 0);
}

/* See the header. Needs a model with its own chat template; empties the KV cache. */
int rkllm_set_function_tools(LLMHandle handle, const char *system_prompt, const char *tools,
                             const char *tool_response_str) {
    struct call_log log;
    struct model *m = api_enter(&log, "rkllm_set_function_tools", handle);
    call_log_text(&log, "system_prompt", system_prompt);
    call_log_text(&log, "tools", tools);
    call_log_text(&log, "tool_response_str", tool_response_str);
    if (!m || !model_begin_change(m, "rkllm_set_function_tools")) return api_leave(&log, -1);
    bool good = m->script->chat.present;
    if (!good)
        console_line('E', "Failed to set function tools, possibly because the chat_template is empty.");
    else if (!(good = chat_set_tools(&m->chat, &m->script->chat, system_prompt, tools, tool_response_str)))
        console_line('E', "Failed to set function tools, the tools are not a JSON array.");
    if (good) model_forget(m, false);
    model_end_change(m);
    return api_leave(&log, good ? 0 : -1);
}

/* See the header. Only remembered by the call log. */
int rkllm_set_cross_attn_params(LLMHandle handle, RKLLMCrossAttnParam *params) {
    struct call_log log;
    struct model *m = api_enter(&log, "rkllm_set_cross_attn_params", handle);
    call_log_given(&log, "encoder_k_cache", params ? params->encoder_k_cache : NULL);
    call_log_given(&log, "encoder_v_cache", params ? params->encoder_v_cache : NULL);
    call_log_given(&log, "encoder_mask", params ? params->encoder_mask : NULL);
    call_log_given(&log, "encoder_pos", params ? params->encoder_pos : NULL);
    call_log_number(&log, "num_tokens", params ? params->num_tokens : 0);
    if (!m || !params || !model_begin_change(m, "rkllm_set_cross_attn_params")) return api_leave(&log, -1);
    bool good = m->settings.cross_attn;
    if (!good) console_line('E', "cross attention was not enabled by use_cross_attn!");
    model_end_change(m);
    return api_leave(&log, good ? 0 : -1);
}
#else
/* See the header. */
int rkllm_clear_kv_cache(LLMHandle handle, int keep_system_prompt) {
    struct call_log log;
    struct model *m = api_enter(&log, "rkllm_clear_kv_cache", handle);
    call_log_number(&log, "keep_system_prompt", keep_system_prompt);
    if (!m || !model_begin_change(m, "rkllm_clear_kv_cache")) return api_leave(&log, -1);
    model_forget(m, keep_system_prompt != 0);
    model_end_change(m);
    return api_leave(&log, 0);
}
#endif

/* Prints what the runtime prints when its template is replaced. */
static void print_template(const struct chat_state *chat) {
    console_line('I', "reset chat template:");
    console_escaped("system_prompt", chat->system);
    console_escaped("prompt_prefix", chat->prefix);
    console_escaped("prompt_postfix", chat->postfix);
    console_line('W', "Calling rkllm_set_chat_template will disable the internal automatic chat template parsing, "
                      "including enable_thinking. Make sure your custom prompt is complete and valid.");
    console_line('I', "All kv caches have been deleted!");
}

/* See the header. The last call wins; the KV cache, a paused run, thinking and tools are gone after it. */
int rkllm_set_chat_template(LLMHandle handle, const char *system_prompt, const char *prompt_prefix,
                            const char *prompt_postfix) {
    struct call_log log;
    struct model *m = api_enter(&log, "rkllm_set_chat_template", handle);
    call_log_text(&log, "system_prompt", system_prompt);
    call_log_text(&log, "prompt_prefix", prompt_prefix);
    call_log_text(&log, "prompt_postfix", prompt_postfix);
    if (!m || !model_begin_change(m, "rkllm_set_chat_template")) return api_leave(&log, -1);
    chat_replace(&m->chat, system_prompt, prompt_prefix, prompt_postfix);
    model_forget(m, false);
    print_template(&m->chat);
    model_end_change(m);
    return api_leave(&log, 0);
}

/* The vendor's library exports these without declaring them. Their arguments are not public, so they take none and
 * read none; a program that calls them finds them and learns nothing. */
RKLLM_EXPORT int rkllm_accuracy_analysis(void);
int rkllm_accuracy_analysis(void) {
    console_line('W', "rkllm_accuracy_analysis does nothing in the emulator");
    return -1;
}

#if RKLLM_ABI < 130
RKLLM_EXPORT void rkllm_print_timings(void);
void rkllm_print_timings(void) { console_line('W', "rkllm_print_timings does nothing in the emulator"); }

RKLLM_EXPORT void rkllm_print_memorys(void);
void rkllm_print_memorys(void) { console_line('W', "rkllm_print_memorys does nothing in the emulator"); }
#endif
