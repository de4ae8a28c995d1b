/* test_state.c: what a handle keeps between runs and what rkllm_init refuses, seen through the interface. */

#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "session.h"

#define CHATML_HEAD BYTES_HEAD "template chatml no_thinking \"<think>\\n\\n</think>\\n\\n\"\n"
#define ECHO_RULES                                                                                                    \
    "rule tool\n user buy ([a-z]+)\n results 0\n prompt \"name\":\"shop\"\n call shop {\"what\": \"$1\"}\n"           \
    "rule sold\n user buy ([a-z]+)\n results 1+\n result (.*)\n say $1: %1\n"                                         \
    "rule who\n user who\n prompt system.You are a helpful\n say assistant\n"                                         \
    "rule pirate\n prompt pirate\n say arr\n"                                                                         \
    "rule think\n user deep\n think Hm.\n say Deep.\n"

static void text_goes_through_the_template_of_the_model(void) {
    struct session s;
    CHECK_INT(session_open(&s, CHATML_HEAD ECHO_RULES), 0);
    CHECK_INT(session_ask(&s, "who are you?", 0), 0);
    CHECK_TEXT(buf_text(&s.text), "assistant<|im_end|>");
    session_close(&s);
}

static void a_template_of_the_caller_is_plain_concatenation_and_empties_the_cache(void) {
    struct session s;
    CHECK_INT(session_open(&s, CHATML_HEAD ECHO_RULES), 0);
    CHECK_INT(session_ask(&s, "who are you?", 0), 0);
    CHECK_INT(rkllm_set_chat_template(s.handle, "a pirate", NULL, "!"), 0);
#if RKLLM_ABI >= 121
    CHECK_INT(session_cache_size(&s), 0);
#endif
    CHECK_INT(session_ask(&s, "who?", 0), 0);
    CHECK_TEXT(buf_text(&s.text), "arr<|im_end|>");
#if RKLLM_ABI >= 121
    CHECK_INT(s.perf.prefill_tokens, strlen("a piratewho?!"));
#endif
    session_close(&s);
}

#if RKLLM_ABI >= 121
static void thinking_is_off_unless_asked_for_and_gone_with_a_template_of_the_caller(void) {
    struct session s;
    CHECK_INT(session_open(&s, CHATML_HEAD ECHO_RULES), 0);
    CHECK_INT(session_ask_as(&s, "user", "deep", 0, true), 0);
    CHECK_TEXT(buf_text(&s.text), "<think>\nHm.\n</think>\n\nDeep.<|im_end|>");
    CHECK_INT(session_ask_as(&s, "user", "deep", 0, false), 0);
    CHECK_TEXT(buf_text(&s.text), "Deep.<|im_end|>");
    CHECK_INT(rkllm_set_chat_template(s.handle, "", "", ""), 0);
    CHECK_INT(session_ask_as(&s, "user", "deep", 0, false), 0);
    CHECK_TEXT(buf_text(&s.text), "<think>\nHm.\n</think>\n\nDeep.<|im_end|>");
    session_close(&s);
}

#define TOOLS "[{\"type\": \"function\", \"function\": {\"name\": \"shop\"}}]"

static void tools_are_called_and_answered_without_history(void) {
    struct session s;
    CHECK_INT(session_open(&s, CHATML_HEAD ECHO_RULES), 0);
    CHECK_INT(rkllm_set_function_tools(s.handle, "You shop.", TOOLS, "tool_response"), 0);
    CHECK_INT(session_ask(&s, "buy milk", 0), 0);
    CHECK_TEXT(buf_text(&s.text),
               "<tool_call>\n{\"name\": \"shop\", \"arguments\": {\"what\": \"milk\"}}\n</tool_call><|im_end|>");
    CHECK_INT(session_ask_as(&s, "tool", "[{\"price\": 2}, \"fresh\"]", 0, true), 0);
    CHECK_TEXT(buf_text(&s.text), "milk: fresh<|im_end|>");
    CHECK(s.perf.prefill_tokens < 120);
    session_close(&s);
}

static void tools_need_a_template_and_a_json_array_and_vanish_with_a_new_template(void) {
    struct session s, bare;
    CHECK_INT(session_open(&bare, BYTES_HEAD ECHO_RULES), 0);
    CHECK_INT(rkllm_set_function_tools(bare.handle, "", TOOLS, "tool_response"), -1);
    session_close(&bare);
    CHECK_INT(session_open(&s, CHATML_HEAD ECHO_RULES "rule\n say none\n"), 0);
    CHECK_INT(rkllm_set_function_tools(s.handle, "", "{}", "tool_response"), -1);
    CHECK_INT(rkllm_set_function_tools(s.handle, "", NULL, NULL), -1);
    CHECK_INT(rkllm_set_function_tools(s.handle, NULL, TOOLS, NULL), 0);
    CHECK_INT(rkllm_set_chat_template(s.handle, "", "<|im_start|>user\n", "<|im_end|>"), 0);
    CHECK_INT(session_ask(&s, "buy milk", 0), 0);
    CHECK_TEXT(buf_text(&s.text), "none<|im_end|>");
    session_close(&s);
}

static void the_system_prompt_may_stay_when_the_cache_is_cleared(void) {
    struct session s;
    CHECK_INT(session_open(&s, CHATML_HEAD ECHO_RULES), 0);
    CHECK_INT(session_ask(&s, "who are you?", 0), 0);
    CHECK_INT(rkllm_clear_kv_cache(s.handle, 1, NULL, NULL), 0);
    CHECK_INT(session_cache_size(&s), strlen("xsystem\nYou are a helpful assistant.x\n"));
    CHECK_INT(session_ask(&s, "who are you?", 0), 0);
    CHECK_INT(s.perf.prefill_tokens, strlen("xuser\nwho are you?x\nxassistant\n"));
    session_close(&s);
}

static void cross_attention_needs_its_switch(void) {
    struct session s;
    RKLLMCrossAttnParam params = {.num_tokens = 3};
    CHECK_INT(session_open(&s, CHATML_HEAD), 0);
    CHECK_INT(rkllm_set_cross_attn_params(s.handle, &params), -1);
    CHECK_INT(rkllm_set_cross_attn_params(s.handle, NULL), -1);
    session_close(&s);
}
#endif

static void a_saved_prompt_is_not_prefilled_again_after_it_was_loaded(void) {
    struct session s;
    CHECK_INT(session_open(&s, BYTES_HEAD "rule\n say ok\n"), 0);
    CHECK_INT(session_save(&s, "a long beginning", "cache.bin"), 0);
    CHECK_INT(session_clear(&s), 0);
    CHECK_INT(rkllm_load_prompt_cache(s.handle, "cache.bin"), 0);
    CHECK_INT(rkllm_load_prompt_cache(s.handle, "cache.bin"), -1);
    CHECK_INT(session_tokens(&s, "a long beginning and more", 0), 0);
#if RKLLM_ABI >= 121
    CHECK_INT(s.perf.prefill_tokens, strlen(" and more"));
#endif
    CHECK_INT(rkllm_release_prompt_cache(s.handle), 0);
    CHECK_INT(rkllm_release_prompt_cache(s.handle), 0);
    CHECK_INT(rkllm_load_prompt_cache(s.handle, "cache.bin"), 0);
    session_close(&s);
    CHECK_INT(session_open(&s, BYTES_HEAD "rule\n say another model\n"), 0);
    CHECK_INT(rkllm_load_prompt_cache(s.handle, "cache.bin"), -1);
    session_close(&s);
    unlink("cache.bin");
}

static void a_file_that_is_no_prompt_cache_is_refused(void) {
    struct session s;
    CHECK_INT(session_open(&s, BYTES_HEAD), 0);
    CHECK_INT(rkllm_load_prompt_cache(s.handle, "no-such-file"), -1);
    CHECK_INT(rkllm_load_prompt_cache(s.handle, NULL), -1);
    const char *wrong[] = {"", "something else\n", "RKLLM-EMULATOR-PROMPT-CACHE 2\n",
                           "RKLLM-EMULATOR-PROMPT-CACHE 2\n0.0.0\n0\n1\n5\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_file("wrong.bin", wrong[i]);
        CHECK_INT(rkllm_load_prompt_cache(s.handle, "wrong.bin"), -1);
    }
    unlink("wrong.bin");
    session_close(&s);
}

static void an_adapter_is_found_by_the_name_it_was_loaded_with(void) {
    struct session s;
    RKLLMLoraAdapter missing = {"no-such-file", "style", 1.0f}, present = {"lora.bin", "style", 1.0f};
    RKLLMLoraParam chosen = {"style"};
    RKLLMInput input = {.input_type = RKLLM_INPUT_PROMPT, .prompt_input = "x"};
    RKLLMInferParam infer = {.mode = RKLLM_INFER_GENERATE, .lora_params = &chosen};
    write_file("lora.bin", "adapter");
    CHECK_INT(session_open(&s, BYTES_HEAD "rule\n say ok\n"), 0);
    CHECK_INT(rkllm_load_lora(s.handle, &missing), -1);
    CHECK_INT(rkllm_run(s.handle, &input, &infer, &s), -1);
    CHECK_INT(rkllm_load_lora(s.handle, &present), 0);
    CHECK_INT(rkllm_load_lora(s.handle, &present), -1);
    CHECK_INT(rkllm_run(s.handle, &input, &infer, &s), 0);
    session_close(&s);
    unlink("lora.bin");
}

static void a_destroyed_handle_is_refused(void) {
    struct session s;
    CHECK_INT(session_open(&s, BYTES_HEAD "rule\n say ok\n"), 0);
    LLMHandle gone = s.handle;
    CHECK_INT(rkllm_destroy(gone), 0);
    CHECK_INT(rkllm_destroy(gone), -1);
    CHECK_INT(rkllm_abort(gone), -1);
    CHECK_INT(session_ask(&s, "x", 0), -1);
    s.handle = NULL;
    session_close(&s);
}

/* Stands where a callback is wanted and none will come. */
static void never_called(void) {}

/* Calls rkllm_init with a parameter set and expects its refusal. */
static void expect_refusal(RKLLMParam param) {
    int something = 0;
    LLMHandle handle = &something;
#if RKLLM_ABI >= 130
    RKLLMCallback callback = {.result_callback = (LLMResultCallback)never_called};
    CHECK_INT(rkllm_init(&handle, &param, &callback), -1);
#else
    CHECK_INT(rkllm_init(&handle, &param, (LLMResultCallback)never_called), -1);
#endif
    CHECK(handle == NULL);
}

/* Expects rkllm_init to refuse a file with this content. */
static void expect_refusal_of(const char *content) {
    RKLLMParam param = rkllm_createDefaultParam();
    write_file("model.rkllm", content);
    param.model_path = "model.rkllm";
    expect_refusal(param);
    unlink("model.rkllm");
}

static void init_refuses_files_it_cannot_run(void) {
    RKLLMParam param = rkllm_createDefaultParam();
    expect_refusal(param);
    param.model_path = "no-such-file";
    expect_refusal(param);
    expect_refusal_of("");
    expect_refusal_of("GGUF something else");
    expect_refusal_of(BYTES_HEAD "nonsense\n");
    expect_refusal_of(BYTES_HEAD "platform RK3576\n");
    expect_refusal_of(BYTES_HEAD "toolkit 9.0.0\n");
    expect_refusal_of(BYTES_HEAD "fault init-fails\n");
}

static void init_refuses_numbers_that_do_not_go_together(void) {
    RKLLMParam good = rkllm_createDefaultParam(), param;
    write_file("model.rkllm", BYTES_HEAD "context 1024\n");
    good.model_path = "model.rkllm";
    param = good;
    param.max_context_len = 1025;
    expect_refusal(param);
    param = good;
    param.n_keep = param.max_context_len;
    expect_refusal(param);
    param = good;
    param.extend_param.enabled_cpus_mask = CPU4 | CPU5;
    expect_refusal(param);
    param = good;
    param.extend_param.enabled_cpus_num = 2;
    param.extend_param.enabled_cpus_mask = CPU4 | CPU5;
    expect_refusal(param);
    unlink("model.rkllm");
}

static void the_environment_can_change_the_board_and_what_goes_wrong(void) {
    struct session s;
    setenv("RKLLM_EMULATOR_PLATFORM", "RK3576", 1);
    CHECK_INT(session_open(&s, BYTES_HEAD), -1);
    session_close(&s);
    CHECK_INT(session_open(&s, BYTES_HEAD "platform RK3576\n"), 0);
    session_close(&s);
    setenv("RKLLM_EMULATOR_PLATFORM", "RK9999", 1);
    CHECK_INT(session_open(&s, BYTES_HEAD), -1);
    session_close(&s);
    unsetenv("RKLLM_EMULATOR_PLATFORM");
    setenv("RKLLM_EMULATOR_FAULTS", "init-null-handle", 1);
    CHECK_INT(session_open(&s, BYTES_HEAD), 0);
    CHECK(s.handle == NULL);
    session_close(&s);
    setenv("RKLLM_EMULATOR_FAULTS", "unheard-of", 1);
    CHECK_INT(session_open(&s, BYTES_HEAD), -1);
    session_close(&s);
    unsetenv("RKLLM_EMULATOR_FAULTS");
}

static void the_defaults_are_the_documented_ones(void) {
    RKLLMParam param = rkllm_createDefaultParam();
    CHECK(param.top_k == 40 && param.top_p == 0.9f && param.temperature == 0.8f && param.repeat_penalty == 1.1f);
    CHECK(param.mirostat == 0 && param.mirostat_tau == 5.0f && param.mirostat_eta == 0.1f);
    CHECK(param.extend_param.enabled_cpus_num == 4 && param.extend_param.enabled_cpus_mask == 0xf0);
#if RKLLM_ABI >= 121
    CHECK_INT(param.extend_param.n_batch, 1);
#endif
}

static const struct check_test tests[] = {
    {"text goes through the template of the model", text_goes_through_the_template_of_the_model},
    {"a template of the caller is plain concatenation and empties the cache",
     a_template_of_the_caller_is_plain_concatenation_and_empties_the_cache},
#if RKLLM_ABI >= 121
    {"thinking is off unless asked for and gone with a template of the caller",
     thinking_is_off_unless_asked_for_and_gone_with_a_template_of_the_caller},
    {"tools are called and answered without history", tools_are_called_and_answered_without_history},
    {"tools need a template and a JSON array and vanish with a new template",
     tools_need_a_template_and_a_json_array_and_vanish_with_a_new_template},
    {"the system prompt may stay when the cache is cleared", the_system_prompt_may_stay_when_the_cache_is_cleared},
    {"cross attention needs its switch", cross_attention_needs_its_switch},
#endif
    {"a saved prompt is not prefilled again after it was loaded",
     a_saved_prompt_is_not_prefilled_again_after_it_was_loaded},
    {"a file that is no prompt cache is refused", a_file_that_is_no_prompt_cache_is_refused},
    {"an adapter is found by the name it was loaded with", an_adapter_is_found_by_the_name_it_was_loaded_with},
    {"a destroyed handle is refused", a_destroyed_handle_is_refused},
    {"init refuses files it cannot run", init_refuses_files_it_cannot_run},
    {"init refuses numbers that do not go together", init_refuses_numbers_that_do_not_go_together},
    {"the environment can change the board and what goes wrong",
     the_environment_can_change_the_board_and_what_goes_wrong},
    {"the defaults are the documented ones", the_defaults_are_the_documented_ones},
};

CHECK_FILE(state, tests)
