/* test_faults.c: the switches of native/README.md that change how a run goes, each seen through the interface. Those
 * that end the process are tried by its own host (tests/native). */

#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "session.h"

#define TURN(text) "<|im_start|>user\n" text "<|im_end|>\n<|im_start|>assistant\n"
#define CHATML "template chatml\n"

enum { SYSTEM = 1 + 7 + 28 + 1 + 1 }; /* the system turn of ChatML in bytes and control tokens */

/* Opens a model that says hello, with faults; ends the test program when that fails. */
static void open_with(struct session *s, const char *faults) {
    struct buf script = {0};
    buf_printf(&script, "%s%srule\n user hello\n say Hi there\nrule\n say 0123456789\n", BYTES_HEAD CHATML, faults);
    CHECK_INT(session_open(s, buf_text(&script)), 0);
    if (!s->handle) exit(1);
    buf_free(&script);
}

static void out_of_memory_fails_init_or_one_run(void) {
    struct session first, s;
    CHECK_INT(session_open(&s, BYTES_HEAD "fault out-of-memory at init\n"), -1);
    session_close(&s);
    open_with(&first, "fault out-of-memory at second-model\n");
    CHECK_INT(session_open(&s, BYTES_HEAD "fault out-of-memory at second-model\n"), -1);
    CHECK(s.handle == NULL);
    session_close(&s);
    session_close(&first);
    open_with(&s, "fault out-of-memory at second-model\nrule\n user else\n fault out-of-memory at run\n");
    CHECK_INT(session_tokens(&s, TURN("else"), 0), -1);
    CHECK(s.error == 1 && s.normal == 0 && s.finish == 0);
    session_forget(&s);
    CHECK_INT(session_tokens(&s, TURN("hello"), 0), 0);
    CHECK_INT(s.finish, 1);
    session_close(&s);
}

static void a_failing_matmul_says_token_0_for_every_token(void) {
    struct session s;
    open_with(&s, "fault driver-version 0.8.2\nfault matmul-fails\n");
    CHECK_INT(session_tokens(&s, TURN("hello"), 0), 0);
    CHECK(s.tokens.len == 9 && s.tokens.data[0] == 0 && s.tokens.data[7] == 0 && s.tokens.data[8] == IM_END);
    session_close(&s);
}

static void a_stall_is_one_pause_that_an_abort_ends(void) {
    struct session s;
    open_with(&s, "fault stall after 2 0.001\n");
    CHECK_INT(session_tokens(&s, TURN("hello"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "Hi there<|im_end|>");
    session_close(&s);
}

static void an_abort_can_come_late_be_forgotten_and_change_what_is_returned(void) {
    struct session s;
    open_with(&s, "fault abort-late 3\nfault abort-return -1\n");
    s.abort_at = 2;
    CHECK_INT(session_tokens(&s, TURN("long"), 0), -1);
    CHECK_TEXT(buf_text(&s.text), "01234");
    CHECK_INT(s.finish, 1);
    session_close(&s);
    open_with(&s, "fault abort-forgotten always\n");
    s.abort_at = 2;
    CHECK_INT(session_tokens(&s, TURN("long"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "0123456789<|im_end|>");
    session_close(&s);
    open_with(&s, "fault abort-forgotten in-prefill\n");
    s.abort_at = 2;
    CHECK_INT(session_tokens(&s, TURN("long"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "01");
    session_close(&s);
}

static void a_wrong_token_comes_at_its_place_and_the_answer_goes_on_behind_it(void) {
    struct session s;
    open_with(&s, "fault wrong-token \"\\\"}\" after 2\n");
    CHECK_INT(session_tokens(&s, TURN("long"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "01\"}23456789<|im_end|>");
    session_forget(&s);
    CHECK_INT(session_tokens(&s, TURN("long"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "0123456789<|im_end|>");
    session_close(&s);
    /* An end, twice, counted with what the prompt has begun; other white space is the same beginning. */
    open_with(&s, "fault wrong-token <|im_end|> after 4 times 2\n");
    CHECK_INT(session_tokens(&s, TURN("long") "0123", 0), 0);
    CHECK_TEXT(buf_text(&s.text), "<|im_end|>");
    session_forget(&s);
    CHECK_INT(session_tokens(&s, TURN("long") "01", 0), 0);
    CHECK_TEXT(buf_text(&s.text), "23<|im_end|>");
    session_forget(&s);
    CHECK_INT(session_tokens(&s, TURN("long") "01 2", 0), 0);
    CHECK_TEXT(buf_text(&s.text), "3456789<|im_end|>");
    session_close(&s);
}

#if RKLLM_ABI >= 130
/* Plays an embedding table that hears of an abort while the prompt is evaluated. */
static int abort_here(void *userdata, int32_t *tokens, uint64_t count, void *rows, uint64_t bytes) {
    struct session *s = userdata;
    (void)tokens, (void)rows, (void)bytes;
    CHECK_INT(count > 1 ? rkllm_abort(s->handle) : 0, 0);
    return 0;
}

static void an_abort_in_the_prefill_can_be_forgotten(void) {
    struct session s;
    struct session_options options = {.embed = abort_here};
    CHECK_INT(session_open_with(&s, BYTES_HEAD "without embedding\nrule\n say ok\n", &options), 0);
    CHECK_INT(session_tokens(&s, "abc", 0), 0);
    CHECK_TEXT(buf_text(&s.text), "");
    session_close(&s);
    CHECK_INT(session_open_with(&s, BYTES_HEAD "without embedding\nfault abort-forgotten in-prefill\nrule\n say ok\n",
                                &options), 0);
    CHECK_INT(session_tokens(&s, "abc", 0), 0);
    CHECK_TEXT(buf_text(&s.text), "ok<|im_end|>");
    session_close(&s);
}
#endif

/* Asks for an abort at every token. */
static void keep_aborting(struct session *s, RKLLMResult *result) {
    (void)result;
    rkllm_abort(s->handle);
}

static void a_second_abort_is_heard_when_the_first_was_forgotten(void) {
    struct session s;
    open_with(&s, "fault abort-forgotten once\n");
    s.on_token = keep_aborting;
    CHECK_INT(session_tokens(&s, TURN("long"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "01");
    session_close(&s);
}

static void a_run_can_have_a_thread_of_its_own(void) {
    struct session s;
    open_with(&s, "fault callback-thread new\n");
    for (int i = 0; i < 3; i++) {
        CHECK_INT(session_tokens(&s, TURN("hello"), 0), 0);
        CHECK(!pthread_equal(s.thread, pthread_self()));
    }
    session_forget(&s);
    CHECK_INT(session_async(&s, "hello"), 0);
    session_wait_end(&s);
    CHECK_INT(s.finish, 1);
    session_close(&s);
}

static void an_asynchronous_run_can_be_silent(void) {
    struct session s;
    open_with(&s, "fault run-async silent\n");
    CHECK_INT(session_async(&s, "hello"), 0);
    while (rkllm_is_running(s.handle)) sched_yield();
    CHECK_INT(s.normal + s.waiting + s.finish + s.error, 0);
    CHECK_INT(session_tokens(&s, TURN("hello"), 0), 0);
    CHECK_INT(s.finish, 1);
    session_close(&s);
}

static void a_hanging_prefill_ends_with_the_abort(void) {
    struct session s;
    open_with(&s, "fault hang in-prefill\nfault callback-thread calling\n");
    CHECK_INT(session_async(&s, "hello"), 0);
    CHECK_INT(rkllm_abort(s.handle), 0);
    session_wait_end(&s);
    CHECK(s.finish == 1 && s.normal == 0);
    session_close(&s);
}

#if RKLLM_ABI >= 121
/* Returns how many tokens a run of the text prefills. */
static int prefilled(struct session *s, const char *text, int keep_history) {
    CHECK_INT(session_tokens(s, text, keep_history), 0);
    return s->perf.prefill_tokens;
}

static void tokens_can_be_left_for_the_next_run_always_with_history_or_never(void) {
    struct session s;
    int whole = (int)strlen("xuser\nhellox\nxassistant\n");
    open_with(&s, "");
    prefilled(&s, TURN("hello"), 0);
    CHECK_INT(prefilled(&s, TURN("hello"), 0), 1);
    session_close(&s);
    open_with(&s, "fault reuse keep-history-only\n");
    prefilled(&s, TURN("hello"), 0);
    CHECK_INT(session_cache_size(&s), 0);
    CHECK_INT(prefilled(&s, TURN("hello"), 1), whole);
    CHECK_INT(prefilled(&s, TURN("hello"), 0), 1);
    CHECK_INT(prefilled(&s, TURN("hello"), 0), whole);
    session_close(&s);
    open_with(&s, "fault reuse off\n");
    prefilled(&s, TURN("hello"), 1);
    CHECK_INT(prefilled(&s, TURN("hello"), 1), whole + 9 + whole);
    CHECK_INT(prefilled(&s, TURN("hello"), 0), whole);
    CHECK_INT(prefilled(&s, TURN("hello"), 0), whole);
    session_close(&s);
}

static void kept_history_can_stay_until_the_cache_is_cleared(void) {
    struct session s;
    int whole = (int)strlen("xuser\nhellox\nxassistant\n");
    open_with(&s, "fault history-stays\nfault reuse off\n");
    CHECK_INT(prefilled(&s, TURN("hello"), 0), whole);
    CHECK_INT(prefilled(&s, TURN("hello"), 1), whole);
    CHECK_INT(prefilled(&s, TURN("hello"), 0), whole + 9 + whole);
    CHECK_INT(prefilled(&s, TURN("hello"), 0), 2 * (whole + 9) + whole);
    CHECK_INT(session_clear(&s), 0);
    CHECK_INT(prefilled(&s, TURN("hello"), 0), whole);
    session_close(&s);
}

static void the_system_prompt_stays_cached_or_does_not(void) {
    struct session s;
    open_with(&s, "fault reuse off\n");
    CHECK_INT(session_ask(&s, "hello", 0), 0);
    CHECK_INT(session_cache_size(&s), SYSTEM);
    int first = s.perf.prefill_tokens;
    CHECK_INT(session_ask(&s, "hello", 0), 0);
    CHECK_INT(s.perf.prefill_tokens, first - SYSTEM);
    session_close(&s);
    open_with(&s, "fault reuse off\nfault system-prompt dropped\n");
    CHECK_INT(session_ask(&s, "hello", 0), 0);
    CHECK_INT(session_cache_size(&s), 0);
    CHECK_INT(session_ask(&s, "hello", 0), 0);
    CHECK_INT(s.perf.prefill_tokens, first);
    session_close(&s);
}

static void a_full_match_evaluates_the_last_token_none_or_all(void) {
    static const struct {
        const char *fault;
        int expected;
    } cases[] = {{"", 1}, {"fault full-match last\n", 1}, {"fault full-match none\n", 0},
                 {"fault full-match all\n", (int)sizeof "xuser\nhellox\nxassistant\n" - 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct session s;
        open_with(&s, cases[i].fault);
        prefilled(&s, TURN("hello"), 0);
        session_forget(&s);
        CHECK_INT(prefilled(&s, TURN("hello"), 0), cases[i].expected);
        CHECK_TEXT(buf_text(&s.text), "Hi there<|im_end|>");
        session_close(&s);
    }
}

/* Pauses a run of ten digits after the third, then lets something happen and runs another text; returns what it
 * says. */
static const char *after_pause(struct session *s, const char *faults, int clears, int aborts) {
    open_with(s, faults);
    s->pause_at = 3;
    CHECK_INT(session_tokens(s, TURN("long"), 0), 0);
    CHECK(s->normal == 3 && s->finish == 0);
    if (clears) CHECK_INT(session_clear(s), 0);
    if (aborts) CHECK_INT(rkllm_abort(s->handle), 0);
    session_forget(s);
    CHECK_INT(session_tokens(s, TURN("hello"), 0), 0);
    return buf_text(&s->text);
}

static void the_paused_state_is_left_in_the_way_that_was_chosen(void) {
    static const struct {
        const char *fault;
        int clears, aborts, left;
    } cases[] = {{"", 0, 0, 0},
                 {"", 1, 0, 1},
                 {"", 0, 1, 0},
                 {"fault leave-pause run\n", 0, 0, 1},
                 {"fault leave-pause abort\n", 0, 0, 0},
                 {"fault leave-pause abort\n", 0, 1, 1},
                 {"fault leave-pause abort\n", 1, 0, 1},
                 {"fault leave-pause never\n", 1, 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct session s;
        CHECK_TEXT(after_pause(&s, cases[i].fault, cases[i].clears, cases[i].aborts),
                   cases[i].left ? "Hi there<|im_end|>" : "3456789<|im_end|>");
        session_close(&s);
    }
}
#endif

/* Runs a prompt and has its tokens saved. */
static int save(struct session *s, const char *text, const char *path) {
    RKLLMPromptCacheParam cache = {.save_prompt_cache = 1, .prompt_cache_path = path};
    RKLLMInput input = {.input_type = RKLLM_INPUT_PROMPT, .prompt_input = text};
    RKLLMInferParam infer = {.mode = RKLLM_INFER_GENERATE, .prompt_cache_params = &cache};
    return rkllm_run(s->handle, &input, &infer, s);
}

static void a_model_can_be_one_without_prompt_cache_files(void) {
    struct session s;
    CHECK_INT(session_open(&s, BYTES_HEAD "prompt_cache refused\nrule\n say ok\n"), 0);
    CHECK_INT(save(&s, "prefix", "none.bin"), 0);
    CHECK(access("none.bin", F_OK) != 0);
    CHECK_INT(rkllm_load_prompt_cache(s.handle, "none.bin"), -1);
    session_close(&s);
    CHECK_INT(session_open(&s, BYTES_HEAD "prompt_cache ignored\nrule\n say ok\n"), 0);
    CHECK_INT(save(&s, "prefix", "none.bin"), 0);
    CHECK(access("none.bin", F_OK) != 0);
    CHECK_INT(rkllm_load_prompt_cache(s.handle, "none.bin"), 0);
    CHECK_INT(rkllm_load_prompt_cache(s.handle, "none.bin"), 0);
    session_close(&s);
}

static void a_loaded_prompt_is_there_until_it_is_released(void) {
    struct session s;
    open_with(&s, "fault reuse off\n");
    CHECK_INT(rkllm_set_chat_template(s.handle, "", "", ""), 0);
    CHECK_INT(save(&s, "a long beginning", "kept.bin"), 0);
    CHECK_INT(rkllm_load_prompt_cache(s.handle, "kept.bin"), 0);
#if RKLLM_ABI >= 121
    for (int i = 0; i < 2; i++) {
        CHECK_INT(prefilled(&s, "a long beginning and more", 0), strlen(" and more"));
        CHECK_INT(session_clear(&s), 0);
    }
    CHECK_INT(rkllm_release_prompt_cache(s.handle), 0);
    CHECK_INT(prefilled(&s, "a long beginning and more", 0), strlen("a long beginning and more"));
#endif
    session_close(&s);
    unlink("kept.bin");
}

static void a_damaged_or_foreign_prompt_cache_is_refused(void) {
    struct session s;
    struct session_options shorter = {.max_context = 512};
    const char *script = BYTES_HEAD "rule\n say ok\n";
    CHECK_INT(session_open(&s, script), 0);
    CHECK_INT(save(&s, "a long beginning", "cache.bin"), 0);
    session_close(&s);
    CHECK_INT(session_open_with(&s, script, &shorter), 0);
    CHECK_INT(rkllm_load_prompt_cache(s.handle, "cache.bin"), -1);
    session_close(&s);
    FILE *file = fopen("cache.bin", "r+");
    CHECK(file != NULL);
    if (!file) return;
    fseek(file, -2, SEEK_END);
    fputc('9', file);
    fclose(file);
    CHECK_INT(session_open(&s, script), 0);
    CHECK_INT(rkllm_load_prompt_cache(s.handle, "cache.bin"), -1);
    CHECK_INT(session_tokens(&s, "still works", 0), 0);
    session_close(&s);
    unlink("cache.bin");
}

static const struct check_test tests[] = {
    {"out of memory fails init or one run", out_of_memory_fails_init_or_one_run},
    {"a failing matmul says token 0 for every token", a_failing_matmul_says_token_0_for_every_token},
    {"a stall is one pause that an abort ends", a_stall_is_one_pause_that_an_abort_ends},
    {"an abort can come late, be forgotten and change what is returned",
     an_abort_can_come_late_be_forgotten_and_change_what_is_returned},
    {"a wrong token comes at its place and the answer goes on behind it",
     a_wrong_token_comes_at_its_place_and_the_answer_goes_on_behind_it},
    {"a second abort is heard when the first was forgotten", a_second_abort_is_heard_when_the_first_was_forgotten},
#if RKLLM_ABI >= 130
    {"an abort in the prefill can be forgotten", an_abort_in_the_prefill_can_be_forgotten},
#endif
    {"a run can have a thread of its own", a_run_can_have_a_thread_of_its_own},
    {"an asynchronous run can be silent", an_asynchronous_run_can_be_silent},
    {"a hanging prefill ends with the abort", a_hanging_prefill_ends_with_the_abort},
#if RKLLM_ABI >= 121
    {"tokens can be left for the next run always, with history or never",
     tokens_can_be_left_for_the_next_run_always_with_history_or_never},
    {"kept history can stay until the cache is cleared", kept_history_can_stay_until_the_cache_is_cleared},
    {"the system prompt stays cached or does not", the_system_prompt_stays_cached_or_does_not},
    {"a full match evaluates the last token, none or all", a_full_match_evaluates_the_last_token_none_or_all},
    {"the paused state is left in the way that was chosen", the_paused_state_is_left_in_the_way_that_was_chosen},
#endif
    {"a model can be one without prompt-cache files", a_model_can_be_one_without_prompt_cache_files},
    {"a loaded prompt is there until it is released", a_loaded_prompt_is_there_until_it_is_released},
    {"a damaged or foreign prompt cache is refused", a_damaged_or_foreign_prompt_cache_is_refused},
};

CHECK_FILE(faults, tests)
