/* test_runs.c: what a run does, seen through the interface: tokens, cache, limits, abort, pause, faults. */

#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "session.h"

#define HELLO_SCRIPT BYTES_HEAD "rule\n user hello\n say Hi there\nrule\n user long\n say 0123456789\n"
#define TURN(text) "<|im_start|>user\n" text "<|im_end|>\n<|im_start|>assistant\n"

static void one_token_comes_per_callback_from_a_library_thread(void) {
    struct session s;
    CHECK_INT(session_open(&s, HELLO_SCRIPT), 0);
    CHECK_INT(session_tokens(&s, TURN("hello"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "Hi there<|im_end|>");
    CHECK_INT(s.tokens.len, 9);
    CHECK_INT(s.tokens.data[8], IM_END);
    CHECK(s.finish == 1 && s.error == 0 && s.waiting == 0);
    CHECK(!pthread_equal(s.thread, pthread_self()));
    session_close(&s);
}

static void a_special_token_is_silent_when_it_is_to_be_skipped(void) {
    struct session s;
    struct session_options options = {.skip_special = true};
    CHECK_INT(session_open_with(&s, HELLO_SCRIPT, &options), 0);
    CHECK_INT(session_tokens(&s, TURN("hello"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "Hi there");
    CHECK_INT(s.tokens.len, 8);
    session_close(&s);
}

static void bytes_of_a_character_are_held_until_it_is_complete(void) {
    struct session s;
    CHECK_INT(session_open(&s, BYTES_HEAD "rule\n say \xe6\x9d\xb1" "a\n"), 0);
    CHECK_INT(session_tokens(&s, TURN("x"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "\xe6\x9d\xb1" "a<|im_end|>");
    CHECK(s.waiting == 2 && s.normal == 3 && s.null_texts == 2);
    session_close(&s);
}

static void only_what_is_new_is_prefilled_and_the_last_token_is_not_cached(void) {
    struct session s;
    CHECK_INT(session_open(&s, HELLO_SCRIPT), 0);
    CHECK_INT(session_tokens(&s, TURN("hello"), 0), 0);
#if RKLLM_ABI >= 121
    int prompt = (int)strlen("xuser\nhellox\nxassistant\n");
    CHECK_INT(s.perf.prefill_tokens, prompt);
    CHECK_INT(s.perf.generate_tokens, 9);
    CHECK(s.perf.memory_usage_mb > 0);
    CHECK_INT(session_cache_size(&s), prompt + 9 - 1);
    CHECK_INT(session_tokens(&s, TURN("hello") "Hi there<|im_end|>\n" TURN("long"), 0), 0);
    CHECK_INT(s.perf.prefill_tokens, 1 + 1 + (int)strlen("xuser\nlongx\nxassistant\n"));
    CHECK_INT(session_tokens(&s, TURN("hello"), 0), 0);
    CHECK_INT(s.perf.prefill_tokens, 1);
    CHECK_INT(session_clear(&s), 0);
    CHECK_INT(session_cache_size(&s), 0);
#endif
    session_close(&s);
}

static void history_is_appended_with_the_token_that_was_pending(void) {
    struct session s;
    CHECK_INT(session_open(&s, HELLO_SCRIPT), 0);
    CHECK_INT(session_tokens(&s, TURN("hello"), 1), 0);
    session_forget(&s);
    CHECK_INT(session_tokens(&s, TURN("long"), 1), 0);
    CHECK_TEXT(buf_text(&s.text), "0123456789<|im_end|>");
#if RKLLM_ABI >= 121
    int first = (int)strlen("xuser\nhellox\nxassistant\n") + 9, second = (int)strlen("xuser\nlongx\nxassistant\n");
    CHECK_INT(s.perf.prefill_tokens, 1 + second);
    CHECK_INT(session_cache_size(&s), first + second + 11 - 1);
#endif
    session_close(&s);
}

static void a_run_ends_at_its_limit_with_finish(void) {
    struct session s;
    struct session_options options = {.max_new_tokens = 4};
    CHECK_INT(session_open_with(&s, HELLO_SCRIPT, &options), 0);
    CHECK_INT(session_tokens(&s, TURN("long"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "0123");
    CHECK_INT(s.finish, 1);
    session_close(&s);
}

static void a_prompt_longer_than_the_context_is_refused(void) {
    struct session s;
    struct session_options options = {.max_context = 32};
    char prompt[64];
    memset(prompt, 'x', 33);
    prompt[33] = 0;
    CHECK_INT(session_open_with(&s, BYTES_HEAD "rule\n say ok\n", &options), 0);
    CHECK_INT(session_tokens(&s, prompt, 0), -1);
    CHECK_INT(s.normal + s.finish + s.error, 0);
    prompt[32] = 0;
    CHECK_INT(session_tokens(&s, prompt, 0), 0);
    CHECK_TEXT(buf_text(&s.text), "ok<|im_end|>");
    session_close(&s);
}

static void a_full_context_drops_old_entries_behind_those_to_keep(void) {
    struct session s;
    struct session_options options = {.max_context = 40, .n_keep = 4};
    CHECK_INT(session_open_with(&s, BYTES_HEAD "rule\n say 0123456789\n", &options), 0);
    CHECK_INT(session_tokens(&s, "a prompt of twenty ab", 1), 0);
    CHECK_INT(session_tokens(&s, "and more than can fit", 1), 0);
    CHECK_INT(s.finish, 2);
#if RKLLM_ABI >= 121
    CHECK(session_cache_size(&s) <= 40);
#endif
    CHECK_INT(session_tokens(&s, "and this is too much, whatever is dropped", 1), -1);
    session_close(&s);
}

static void abort_from_a_callback_ends_the_run_before_the_next_token(void) {
    struct session s;
    CHECK_INT(session_open(&s, HELLO_SCRIPT), 0);
    s.abort_at = 3;
    CHECK_INT(session_tokens(&s, TURN("long"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "012");
    CHECK(s.finish == 1 && s.error == 0);
#if RKLLM_ABI >= 121
    CHECK_INT(session_cache_size(&s), strlen("xuser\nlongx\nxassistant\n") + 2);
#endif
    session_forget(&s);
    CHECK_INT(session_tokens(&s, TURN("hello"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "Hi there<|im_end|>");
    CHECK_INT(rkllm_abort(s.handle), 0);
    session_close(&s);
}

static void what_follows_an_abort_can_be_chosen(void) {
    struct session s;
    CHECK_INT(session_open(&s, HELLO_SCRIPT "fault after-abort error\nrule\n say 0123\n fault no-finish-on-abort\n"), 0);
    s.abort_at = 2;
    CHECK_INT(session_tokens(&s, TURN("long"), 0), 0);
    CHECK(s.finish == 0 && s.error == 1);
    session_forget(&s);
    s.abort_at = 2;
    CHECK_INT(session_tokens(&s, TURN("else"), 0), 0);
    CHECK(s.finish == 0 && s.error == 0 && s.normal == 2);
    session_close(&s);
}

#if RKLLM_ABI >= 121
static void a_paused_run_is_resumed_whatever_the_prompt_says(void) {
    struct session s;
    CHECK_INT(session_open(&s, HELLO_SCRIPT), 0);
    s.pause_at = 3;
    CHECK_INT(session_tokens(&s, TURN("long"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "012");
    CHECK(s.finish == 0 && s.error == 0);
    session_forget(&s);
    CHECK_INT(session_tokens(&s, TURN("hello"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "3456789<|im_end|>");
    CHECK(s.finish == 1 && s.perf.generate_tokens == 11);
    session_close(&s);
}

static void a_range_is_cleared_only_while_a_run_is_paused(void) {
    struct session s;
    int start = 0, end = 4, reversed = 3;
    CHECK_INT(session_open(&s, HELLO_SCRIPT), 0);
    CHECK_INT(rkllm_clear_kv_cache(s.handle, 0, &start, &end), -1);
    s.pause_at = 3;
    CHECK_INT(session_tokens(&s, TURN("long"), 0), 0);
    long before = session_cache_size(&s);
    CHECK_INT(rkllm_clear_kv_cache(s.handle, 0, &end, &reversed), -1);
    CHECK_INT(rkllm_clear_kv_cache(s.handle, 0, &start, NULL), -1);
    CHECK_INT(rkllm_clear_kv_cache(s.handle, 0, &start, &end), 0);
    CHECK_INT(session_cache_size(&s), before - 4);
    CHECK_INT(session_clear(&s), 0);
    session_forget(&s);
    CHECK_INT(session_tokens(&s, TURN("hello"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "Hi there<|im_end|>");
    session_close(&s);
}

static void a_run_with_history_cannot_be_paused(void) {
    struct session s;
    CHECK_INT(session_open(&s, HELLO_SCRIPT), 0);
    s.pause_at = 3;
    CHECK_INT(session_tokens(&s, TURN("long"), 1), 0);
    CHECK_TEXT(buf_text(&s.text), "0123456789<|im_end|>");
    session_close(&s);
}
#endif

/* Notes whether the text of the callback before has been overwritten. */
static void look_back(struct session *s, RKLLMResult *result) {
    if (s->kept && (unsigned char)s->kept[0] == 0xa5 && (unsigned char)s->kept[6] == 0xa5) s->pause_at--;
    s->kept = result->text;
}

static void a_text_that_was_kept_is_poisoned_when_its_callback_returned(void) {
    struct session s;
    CHECK_INT(session_open(&s, HELLO_SCRIPT), 0);
    s.on_token = look_back;
    CHECK_INT(session_tokens(&s, TURN("long"), 0), 0);
    CHECK_INT(s.pause_at, -10);
    session_close(&s);
}

static void an_error_ends_the_run_and_the_next_one_works(void) {
    struct session s;
    CHECK_INT(session_open(&s, HELLO_SCRIPT "rule\n user bad\n say 0123\n fault error after 2\n"), 0);
    CHECK_INT(session_tokens(&s, TURN("bad"), 0), -1);
    CHECK(s.normal == 2 && s.finish == 0 && s.error == 1);
    session_forget(&s);
    CHECK_INT(session_tokens(&s, TURN("hello"), 0), 0);
    CHECK_INT(s.finish, 1);
    session_close(&s);
}

static void a_token_without_text_can_be_asked_for(void) {
    struct session s;
    CHECK_INT(session_open(&s, BYTES_HEAD "fault null-text at 2\nrule\n say abc\n"), 0);
    CHECK_INT(session_tokens(&s, TURN("x"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "ac<|im_end|>");
    CHECK_INT(s.null_texts, 1);
    session_close(&s);
}

static void a_model_that_ignores_eos_goes_on_to_the_limit(void) {
    struct session s;
    struct session_options options = {.max_new_tokens = 7, .skip_special = true};
    CHECK_INT(session_open_with(&s, BYTES_HEAD "fault ignore-eos\nrule\n say ab\n", &options), 0);
    CHECK_INT(session_tokens(&s, TURN("x"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "ababa");
    CHECK_INT(s.finish, 1);
    session_close(&s);
}

#if RKLLM_ABI >= 130
static void one_run_may_have_its_own_limit_and_sampling(void) {
    struct session s;
    struct session_options options = {.ignore_eos = true, .max_new_tokens = 3};
    RKLLMSamplingParam sampling = {.top_k = 1, .top_p = 0.5f, .temperature = 0.1f, .repeat_penalty = 1};
    RKLLMInferParam infer = {.sampling_params = &sampling, .max_new_tokens = 5};
    RKLLMInput input = {.role = "user", .input_type = RKLLM_INPUT_PROMPT, .prompt_input = "x"};
    CHECK_INT(session_open_with(&s, BYTES_HEAD "rule\n say ab\n", &options), 0);
    CHECK_INT(rkllm_run(s.handle, &input, &infer, NULL), 0);
    CHECK_TEXT(buf_text(&s.text), "ab<|im_end|>ab");
    session_close(&s);
}
#endif

static void what_cannot_be_run_is_refused(void) {
    struct session s;
    int32_t outside = 259;
    char no_tag[] = "no tag", tag[] = "<image>";
    RKLLMInferParam infer = {.mode = RKLLM_INFER_GENERATE};
    RKLLMInferParam unknown = {.mode = (RKLLMInferMode)7};
    RKLLMLoraParam no_such_lora = {"nobody"};
    RKLLMInferParam adapted = {.lora_params = &no_such_lora};
    RKLLMInput inputs[] = {
        {.input_type = RKLLM_INPUT_PROMPT},
        {.input_type = RKLLM_INPUT_PROMPT, .prompt_input = ""},
        {.input_type = RKLLM_INPUT_TOKEN},
        {.input_type = RKLLM_INPUT_TOKEN, .token_input = {&outside, 1}},
        {.input_type = RKLLM_INPUT_EMBED},
        {.input_type = RKLLM_INPUT_EMBED, .embed_input = {NULL, 1}},
        {.input_type = RKLLM_INPUT_MULTIMODAL, .multimodal_input = {.prompt = no_tag}},
        {.input_type = RKLLM_INPUT_MULTIMODAL, .multimodal_input = {.prompt = tag}},
        {.input_type = (RKLLMInputType)9},
    };
    RKLLMInput good = {.input_type = RKLLM_INPUT_PROMPT, .prompt_input = "x"};
    CHECK_INT(session_open(&s, HELLO_SCRIPT), 0);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        CHECK_INT(rkllm_run(s.handle, &inputs[i], &infer, &s), -1);
    CHECK_INT(rkllm_run(s.handle, NULL, &infer, &s), -1);
    CHECK_INT(rkllm_run(s.handle, &good, NULL, &s), -1);
    CHECK_INT(rkllm_run(s.handle, &good, &unknown, &s), -1);
    CHECK_INT(rkllm_run(s.handle, &good, &adapted, &s), -1);
    CHECK_INT(s.normal + s.finish + s.error, 0);
    CHECK_INT(rkllm_run(s.handle, &good, &infer, &s), 0);
    session_close(&s);
}

static void a_null_handle_is_refused_by_every_function(void) {
    RKLLMInput input = {.input_type = RKLLM_INPUT_PROMPT, .prompt_input = "x"};
    RKLLMInferParam infer = {.mode = RKLLM_INFER_GENERATE};
    CHECK_INT(rkllm_run(NULL, &input, &infer, NULL), -1);
    CHECK_INT(rkllm_run_async(NULL, &input, &infer, NULL), -1);
    CHECK_INT(rkllm_abort(NULL), -1);
    CHECK_INT(rkllm_is_running(NULL), -1);
    CHECK_INT(rkllm_destroy(NULL), -1);
    CHECK_INT(rkllm_load_lora(NULL, NULL), -1);
    CHECK_INT(rkllm_load_prompt_cache(NULL, NULL), -1);
    CHECK_INT(rkllm_release_prompt_cache(NULL), -1);
    CHECK_INT(rkllm_set_chat_template(NULL, NULL, NULL, NULL), -1);
#if RKLLM_ABI >= 121
    CHECK_INT(rkllm_clear_kv_cache(NULL, 0, NULL, NULL), -1);
    CHECK_INT(rkllm_get_kv_cache_size(NULL, NULL), -1);
    CHECK_INT(rkllm_set_function_tools(NULL, NULL, NULL, NULL), -1);
    CHECK_INT(rkllm_set_cross_attn_params(NULL, NULL), -1);
#else
    CHECK_INT(rkllm_clear_kv_cache(NULL, 0), -1);
#endif
}

static const struct check_test tests[] = {
    {"one token comes per callback from a library thread", one_token_comes_per_callback_from_a_library_thread},
    {"a special token is silent when it is to be skipped", a_special_token_is_silent_when_it_is_to_be_skipped},
    {"bytes of a character are held until it is complete", bytes_of_a_character_are_held_until_it_is_complete},
    {"only what is new is prefilled and the last token is not cached",
     only_what_is_new_is_prefilled_and_the_last_token_is_not_cached},
    {"history is appended with the token that was pending", history_is_appended_with_the_token_that_was_pending},
    {"a run ends at its limit with FINISH", a_run_ends_at_its_limit_with_finish},
    {"a prompt longer than the context is refused", a_prompt_longer_than_the_context_is_refused},
    {"a full context drops old entries behind those to keep", a_full_context_drops_old_entries_behind_those_to_keep},
    {"abort from a callback ends the run before the next token",
     abort_from_a_callback_ends_the_run_before_the_next_token},
    {"what follows an abort can be chosen", what_follows_an_abort_can_be_chosen},
#if RKLLM_ABI >= 121
    {"a paused run is resumed whatever the prompt says", a_paused_run_is_resumed_whatever_the_prompt_says},
    {"a range is cleared only while a run is paused", a_range_is_cleared_only_while_a_run_is_paused},
    {"a run with history cannot be paused", a_run_with_history_cannot_be_paused},
#endif
    {"a text that was kept is poisoned when its callback returned",
     a_text_that_was_kept_is_poisoned_when_its_callback_returned},
    {"an error ends the run and the next one works", an_error_ends_the_run_and_the_next_one_works},
    {"a token without text can be asked for", a_token_without_text_can_be_asked_for},
    {"a model that ignores EOS goes on to the limit", a_model_that_ignores_eos_goes_on_to_the_limit},
#if RKLLM_ABI >= 130
    {"one run may have its own limit and sampling", one_run_may_have_its_own_limit_and_sampling},
#endif
    {"what cannot be run is refused", what_cannot_be_run_is_refused},
    {"a NULL handle is refused by every function", a_null_handle_is_refused_by_every_function},
};

CHECK_FILE(runs, tests)
