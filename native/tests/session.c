/* session.c: see session.h. */

#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vocabulary.h"

/* Makes a file of the text; a test that cannot write to its directory cannot go on. */
void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0) {
        perror(path);
        exit(2);
    }
}

/* Keeps a copy of the numbers of a result, if it has any. */
static void note_rows(struct session *s, const RKLLMResult *result) {
    const RKLLMResultLogits *logits = &result->logits;
    const RKLLMResultLastHiddenLayer *hidden = &result->last_hidden_layer;
    const float *from = logits->logits ? logits->logits : hidden->hidden_states;
    if (!from) return;
    s->rows_are_logits = logits->logits != NULL;
    s->row_count = s->rows_are_logits ? logits->num_tokens : hidden->num_tokens;
    s->row_width = s->rows_are_logits ? logits->vocab_size : hidden->embd_size;
    size_t bytes = (size_t)s->row_count * (size_t)s->row_width * sizeof(float);
    s->rows = mem_grow(s->rows, bytes);
    memcpy(s->rows, from, bytes);
}

/* Notes one token and does what the test asked for at it; returns what the callback is to return. */
static int note_token(struct session *s, RKLLMResult *result, LLMCallState state) {
    int position = (int)s->tokens.len + 1;
    ids_put(&s->tokens, result->token_id);
    if (state == RKLLM_RUN_WAITING)
        s->waiting++;
    else
        s->normal++;
    if (!result->text)
        s->null_texts++;
    else
        buf_puts(&s->text, result->text);
    note_rows(s, result);
    if (s->on_token) s->on_token(s, result);
    if (position == s->abort_at) rkllm_abort(s->handle);
    return position == s->pause_at ? 1 : s->wish;
}

/* The callback of every session. */
static int note(RKLLMResult *result, void *userdata, LLMCallState state) {
    struct session *s = userdata;
    s->thread = pthread_self();
    if (state == RKLLM_RUN_NORMAL || state == RKLLM_RUN_WAITING) return note_token(s, result, state);
    pthread_mutex_lock(&s->lock);
#if RKLLM_ABI >= 121
    s->perf = result->perf;
#endif
    if (state == RKLLM_RUN_ERROR) s->error++;
    if (state == RKLLM_RUN_FINISH) s->finish++;
    pthread_cond_signal(&s->ended);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

#if RKLLM_ABI < 121
static void note_without_status(RKLLMResult *result, void *userdata, LLMCallState state) {
    note(result, userdata, state);
}
#endif

/* Opens a model from a script's text, with the usual options. Returns what rkllm_init returned. */
int session_open(struct session *s, const char *script) {
    struct session_options options = {0};
    return session_open_with(s, script, &options);
}

/* Opens a model from a script's text. Returns what rkllm_init returned. */
int session_open_with(struct session *s, const char *script, const struct session_options *options) {
    RKLLMParam param = rkllm_createDefaultParam();
    *s = (struct session){.path = "script-XXXXXX"};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->ended, NULL);
    int file = mkstemp(s->path);
    if (file >= 0) close(file);
    write_file(s->path, script);
    param.model_path = s->path;
    param.max_context_len = options->max_context ? options->max_context : 4096;
    param.max_new_tokens = options->max_new_tokens ? options->max_new_tokens : 1000;
    param.n_keep = options->n_keep ? options->n_keep : -1;
    param.skip_special_token = options->skip_special;
    param.is_async = options->is_async;
#if RKLLM_ABI >= 121
    if (options->n_batch) param.extend_param.n_batch = (uint8_t)options->n_batch;
#endif
#if RKLLM_ABI < 130
    param.img_start = "<|im_start|>[";
    param.img_end = "]";
    param.img_content = "?";
#endif
#if RKLLM_ABI >= 130
    param.ignore_eos_token = options->ignore_eos;
    RKLLMCallback callback = {.result_callback = note,
                              .result_userdata = s,
                              .tokenizer_callback = options->tokenizer,
                              .tokenizer_userdata = s,
                              .embed_callback = options->embed,
                              .embed_userdata = s};
    return rkllm_init(&s->handle, &param, &callback);
#elif RKLLM_ABI >= 121
    return rkllm_init(&s->handle, &param, note);
#else
    return rkllm_init(&s->handle, &param, note_without_status);
#endif
}

/* Destroys the model, if there is one, and frees what was noted. */
void session_close(struct session *s) {
    if (s->handle) rkllm_destroy(s->handle);
    pthread_cond_destroy(&s->ended);
    pthread_mutex_destroy(&s->lock);
    unlink(s->path);
    buf_free(&s->text);
    ids_free(&s->tokens);
    free(s->rows);
}

/* Forgets what callbacks said, and what they were asked to do. */
void session_forget(struct session *s) {
    buf_clear(&s->text);
    ids_truncate(&s->tokens, 0);
    s->normal = s->waiting = s->finish = s->error = s->null_texts = 0;
    s->pause_at = s->abort_at = s->wish = 0;
    s->row_count = s->row_width = 0;
    s->on_token = NULL;
}

/* Runs a text through the model's template, as a user or a tool. */
int session_ask_as(struct session *s, const char *role, const char *text, int keep_history, bool thinking) {
    RKLLMInput input;
    RKLLMInferParam infer;
    memset(&input, 0, sizeof input);
    memset(&infer, 0, sizeof infer);
#if RKLLM_ABI >= 121
    input.role = role;
    input.enable_thinking = thinking;
#else
    (void)role;
    (void)thinking;
#endif
    input.input_type = RKLLM_INPUT_PROMPT;
    input.prompt_input = text;
    infer.mode = RKLLM_INFER_GENERATE;
    infer.keep_history = keep_history;
    session_forget(s);
    return rkllm_run(s->handle, &input, &infer, s);
}

/* Runs a user's text through the model's template. */
int session_ask(struct session *s, const char *text, int keep_history) {
    return session_ask_as(s, "user", text, keep_history, true);
}

/* Appends the ids of text in the vocabulary of BYTES_HEAD. */
void session_encode(const char *text, struct ids *out) {
    static const char *const controls[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    struct vocabulary *v = vocabulary_of_bytes();
    for (int i = 0; i < 3; i++) vocabulary_add_control(v, ENDOFTEXT + i, controls[i], strlen(controls[i]), true);
    vocabulary_finish(v);
    vocabulary_encode(v, text, strlen(text), NULL, out);
    vocabulary_free(v);
}

/* Runs text as token ids of BYTES_HEAD; what the callback was asked to do before is kept. */
int session_tokens(struct session *s, const char *text, int keep_history) {
    struct ids ids = {0};
    RKLLMInput input;
    RKLLMInferParam infer;
    memset(&input, 0, sizeof input);
    memset(&infer, 0, sizeof infer);
    session_encode(text, &ids);
    input.input_type = RKLLM_INPUT_TOKEN;
    input.token_input = (RKLLMTokenInput){ids.data, ids.len};
    infer.keep_history = keep_history;
    int result = rkllm_run(s->handle, &input, &infer, s);
    ids_free(&ids);
    return result;
}

/* Has text, as token ids of BYTES_HEAD, turned into hidden states or logits. */
int session_rows(struct session *s, const char *text, RKLLMInferMode mode) {
    struct ids ids = {0};
    RKLLMInput input;
    RKLLMInferParam infer;
    memset(&input, 0, sizeof input);
    memset(&infer, 0, sizeof infer);
    session_encode(text, &ids);
    input.input_type = RKLLM_INPUT_TOKEN;
    input.token_input = (RKLLMTokenInput){ids.data, ids.len};
    infer.mode = mode;
    int result = rkllm_run(s->handle, &input, &infer, s);
    ids_free(&ids);
    return result;
}

/* Runs an input, or as many as the batch has. */
int session_input(struct session *s, RKLLMInput *input, int keep_history) {
    RKLLMInferParam infer;
    memset(&infer, 0, sizeof infer);
    infer.keep_history = keep_history;
    return rkllm_run(s->handle, input, &infer, s);
}

/* Starts a run that does not block. */
int session_async(struct session *s, const char *text) {
    RKLLMInput input;
    RKLLMInferParam infer;
    memset(&input, 0, sizeof input);
    memset(&infer, 0, sizeof infer);
    input.input_type = RKLLM_INPUT_PROMPT;
    input.prompt_input = text;
    return rkllm_run_async(s->handle, &input, &infer, s);
}

/* Clears the whole cache. */
int session_clear(struct session *s) {
#if RKLLM_ABI >= 121
    return rkllm_clear_kv_cache(s->handle, 0, NULL, NULL);
#else
    return rkllm_clear_kv_cache(s->handle, 0);
#endif
}

/* Returns the number of cached tokens; -1 where the family cannot say. */
long session_cache_size(struct session *s) {
#if RKLLM_ABI >= 121
    int size = -2;
    return rkllm_get_kv_cache_size(s->handle, &size) == 0 ? size : -2;
#else
    (void)s;
    return -1;
#endif
}

/* Waits for the last callback of a run that was started with session_async. */
void session_wait_end(struct session *s) {
    pthread_mutex_lock(&s->lock);
    while (!s->finish && !s->error) pthread_cond_wait(&s->ended, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* Runs a prompt and saves its tokens. */
int session_save(struct session *s, const char *text, const char *path) {
    RKLLMPromptCacheParam cache = {.save_prompt_cache = 1, .prompt_cache_path = path};
    RKLLMInput input = {.input_type = RKLLM_INPUT_PROMPT, .prompt_input = text};
    RKLLMInferParam infer = {.mode = RKLLM_INFER_GENERATE, .prompt_cache_params = &cache};
    return rkllm_run(s->handle, &input, &infer, s);
}
