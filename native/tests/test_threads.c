/* test_threads.c: several threads at one handle: abort, questions, second runs and destroy while a run is active.
 * Meant to run under the thread sanitizer. Speeds are slow enough that a missed wake-up would hang the program. */

#include <stdlib.h>
#include <time.h>

#include "check.h"
#include "session.h"

/* Slow to decode: nothing here waits for a token, everything is woken. */
#define SLOW_SCRIPT                                                                                                   \
    "RKLLM-EMULATOR 1\nvocabulary bytes\ncontrol <|im_end|>\nspeed prefill 1000000 decode 0.01\nrule\n say abc\n"
#define FAST_SCRIPT                                                                                                   \
    "RKLLM-EMULATOR 1\nvocabulary bytes\ncontrol <|im_end|>\nspeed prefill 1000000 decode 2000\nrule\n say "          \
    "0123456789012345678901234567890123456789012345678901234567890123456789\n"

static void *run_in_thread(void *argument) {
    struct session *s = argument;
    return session_tokens(s, "x", 0) == 0 ? s : NULL;
}

/* Starts a run on another thread and returns when it is active. */
static pthread_t start_run(struct session *s) {
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, run_in_thread, s), 0);
    while (!rkllm_is_running(s->handle)) sched_yield();
    return thread;
}

static void abort_wakes_a_run_that_waits_for_its_next_token(void) {
    struct session s;
    void *ended;
    CHECK_INT(session_open(&s, SLOW_SCRIPT), 0);
    pthread_t thread = start_run(&s);
    CHECK_INT(rkllm_abort(s.handle), 0);
    pthread_join(thread, &ended);
    CHECK(ended == &s && s.finish == 1);
    CHECK_INT(rkllm_is_running(s.handle), 0);
    session_close(&s);
}

static void while_one_run_is_active_everything_that_would_change_it_is_refused(void) {
    struct session s;
    CHECK_INT(session_open(&s, SLOW_SCRIPT), 0);
    pthread_t thread = start_run(&s);
    RKLLMInput input = {.input_type = RKLLM_INPUT_PROMPT, .prompt_input = "x"};
    RKLLMInferParam infer = {.mode = RKLLM_INFER_GENERATE};
    CHECK_INT(rkllm_run(s.handle, &input, &infer, NULL), -1);
    CHECK_INT(rkllm_run_async(s.handle, &input, &infer, NULL), -1);
    CHECK_INT(session_clear(&s), -1);
    CHECK_INT(rkllm_set_chat_template(s.handle, "", "", ""), -1);
    CHECK_INT(rkllm_load_prompt_cache(s.handle, "x"), -1);
    CHECK_INT(rkllm_release_prompt_cache(s.handle), -1);
#if RKLLM_ABI >= 121
    CHECK(session_cache_size(&s) >= 0);
#endif
    CHECK_INT(rkllm_abort(s.handle), 0);
    pthread_join(thread, NULL);
    session_close(&s);
}

static void destroy_ends_a_run_and_waits_for_it(void) {
    struct session s;
    void *ended;
    CHECK_INT(session_open(&s, SLOW_SCRIPT), 0);
    pthread_t thread = start_run(&s);
    CHECK_INT(rkllm_destroy(s.handle), 0);
    s.handle = NULL;
    pthread_join(thread, &ended);
    CHECK(ended == &s && s.finish == 1);
    session_close(&s);
}

static void destroy_does_not_wait_for_a_long_prefill(void) {
    struct session s;
    CHECK_INT(session_open(&s, "RKLLM-EMULATOR 1\nvocabulary bytes\ncontrol <|im_end|>\n"
                               "speed prefill 0.001 decode 1\n"), 0);
    pthread_t thread = start_run(&s);
    CHECK_INT(rkllm_destroy(s.handle), 0);
    s.handle = NULL;
    pthread_join(thread, NULL);
    session_close(&s);
}

static void an_abort_waits_for_the_prefill_unless_a_fault_says_otherwise(void) {
    struct session s;
    CHECK_INT(session_open(&s, "RKLLM-EMULATOR 1\nvocabulary bytes\ncontrol <|im_end|>\n"
                               "speed prefill 0.001 decode 1\nfault abort-in-prefill\n"), 0);
    pthread_t thread = start_run(&s);
    CHECK_INT(rkllm_abort(s.handle), 0);
    pthread_join(thread, NULL);
#if RKLLM_ABI >= 121
    CHECK_INT(s.perf.prefill_tokens, 0);
#endif
    session_close(&s);
    CHECK_INT(session_open(&s, "RKLLM-EMULATOR 1\nvocabulary bytes\ncontrol <|im_end|>\n"
                               "speed prefill 20 decode 1\n"), 0);
    thread = start_run(&s);
    CHECK_INT(rkllm_abort(s.handle), 0);
    pthread_join(thread, NULL);
    CHECK_INT(s.tokens.len, 0);
#if RKLLM_ABI >= 121
    CHECK_INT(s.perf.prefill_tokens, 1);
#endif
    session_close(&s);
}

static void a_hanging_run_is_ended_by_abort(void) {
    struct session s;
    CHECK_INT(session_open(&s, "RKLLM-EMULATOR 1\nvocabulary bytes\ncontrol <|im_end|>\nrule\n say abc\n"
                               " fault hang after 2\n"), 0);
    pthread_t thread = start_run(&s);
    CHECK_INT(rkllm_abort(s.handle), 0);
    pthread_join(thread, NULL);
    CHECK(s.normal <= 2 && s.finish == 1);
    session_close(&s);
}

static void an_asynchronous_run_returns_at_once_and_reports_its_end(void) {
    struct session s;
    CHECK_INT(session_open(&s, FAST_SCRIPT), 0);
    CHECK_INT(session_async(&s, "x"), 0);
    session_wait_end(&s);
    CHECK(s.finish == 1 && s.normal == 71);
    session_close(&s);
    CHECK_INT(session_open(&s, FAST_SCRIPT), 0);
    CHECK_INT(session_async(&s, "x"), 0);
    session_close(&s);
}

static void callbacks_come_on_the_calling_thread_when_asked(void) {
    struct session s;
    CHECK_INT(session_open(&s, "RKLLM-EMULATOR 1\nvocabulary bytes\ncontrol <|im_end|>\n"
                               "fault callback-thread calling\nrule\n say abc\n"), 0);
    CHECK_INT(session_tokens(&s, "x", 0), 0);
    CHECK(pthread_equal(s.thread, pthread_self()) && s.normal == 4);
    session_close(&s);
}

/* Calls what must not be called from inside a callback. */
static void misbehave(struct session *s, RKLLMResult *result) {
    (void)result;
    RKLLMInput input = {.input_type = RKLLM_INPUT_PROMPT, .prompt_input = "x"};
    RKLLMInferParam infer = {.mode = RKLLM_INFER_GENERATE};
    CHECK_INT(rkllm_destroy(s->handle), -1);
    CHECK_INT(rkllm_run(s->handle, &input, &infer, NULL), -1);
    CHECK_INT(rkllm_is_running(s->handle), 1);
}

static void a_callback_cannot_destroy_or_run_its_own_model(void) {
    struct session s;
    CHECK_INT(session_open(&s, FAST_SCRIPT), 0);
    s.on_token = misbehave;
    CHECK_INT(session_tokens(&s, "x", 0), 0);
    CHECK_INT(s.finish, 1);
    session_close(&s);
}

static void *pester(void *argument) {
    struct session *s = argument;
    for (int i = 0; i < 200; i++) {
        rkllm_is_running(s->handle);
        session_cache_size(s);
        if (i % 50 == 49) rkllm_abort(s->handle);
    }
    return NULL;
}

static void questions_and_aborts_from_many_threads_do_no_harm(void) {
    struct session s;
    pthread_t threads[4];
    CHECK_INT(session_open(&s, FAST_SCRIPT), 0);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, pester, &s);
    for (int i = 0; i < 10; i++) CHECK_INT(session_tokens(&s, "x", i % 2), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    CHECK_INT(s.finish, 10);
    session_close(&s);
}

static void two_models_run_side_by_side(void) {
    struct session one, two;
    CHECK_INT(session_open(&one, FAST_SCRIPT), 0);
    CHECK_INT(session_open(&two, FAST_SCRIPT), 0);
    pthread_t thread = start_run(&one);
    CHECK_INT(session_tokens(&two, "y", 0), 0);
    pthread_join(thread, NULL);
    CHECK(one.finish == 1 && two.finish == 1 && one.normal == 71 && two.normal == 71);
    session_close(&one);
    session_close(&two);
}

static const struct check_test tests[] = {
    {"abort wakes a run that waits for its next token", abort_wakes_a_run_that_waits_for_its_next_token},
    {"while one run is active everything that would change it is refused",
     while_one_run_is_active_everything_that_would_change_it_is_refused},
    {"destroy ends a run and waits for it", destroy_ends_a_run_and_waits_for_it},
    {"destroy does not wait for a long prefill", destroy_does_not_wait_for_a_long_prefill},
    {"an abort waits for the prefill unless a fault says otherwise",
     an_abort_waits_for_the_prefill_unless_a_fault_says_otherwise},
    {"a hanging run is ended by abort", a_hanging_run_is_ended_by_abort},
    {"an asynchronous run returns at once and reports its end",
     an_asynchronous_run_returns_at_once_and_reports_its_end},
    {"callbacks come on the calling thread when asked", callbacks_come_on_the_calling_thread_when_asked},
    {"a callback cannot destroy or run its own model", a_callback_cannot_destroy_or_run_its_own_model},
    {"questions and aborts from many threads do no harm", questions_and_aborts_from_many_threads_do_no_harm},
    {"two models run side by side", two_models_run_side_by_side},
};

CHECK_FILE(threads, tests)
