/* test_weights.c: a model with weights seen through the interface. $RKLLM_EMULATOR_LLAMA names a folder with
 * fake_llama.c's library, $FAKE_LLAMA_LOG the file its decodes are written to. */

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "sampling.h"
#include "session.h"
#include "source_file.h"

/* The fake library takes any file that exists for weights. */
#define WEIGHTS "weights /dev/null\n"
#define TURN(text) "<|im_start|>user\n" text "<|im_end|>\n<|im_start|>assistant\n"

enum { WIDTH = 8, SIZE = 300 };

/* Returns what was decoded since the last call, line by line: sequence, position, count. */
static const char *decoded(struct buf *log) {
    const char *path = getenv("FAKE_LLAMA_LOG");
    buf_clear(log);
    if (path && access(path, R_OK) == 0 && source_file_read(path, log)) unlink(path);
    return buf_text(log);
}

static void the_answer_comes_from_the_weights(void) {
    struct session s;
    CHECK_INT(session_open(&s, BYTES_HEAD WEIGHTS "template chatml\nrule\n say no\n"), 0);
    CHECK_INT(session_ask(&s, "hello", 0), 0);
    CHECK_TEXT(buf_text(&s.text), "ok<|im_end|>");
    CHECK_INT(s.finish, 1);
    session_close(&s);
}

static void only_what_the_cache_lacks_is_decoded(void) {
    struct session s;
    struct buf log = {0};
    CHECK_INT(session_open(&s, BYTES_HEAD WEIGHTS), 0);
    decoded(&log);
    CHECK_INT(session_tokens(&s, "abc\n", 0), 0);
    CHECK_TEXT(decoded(&log), "0 0 4\n0 4 1\n0 5 1\n");
    CHECK_INT(session_tokens(&s, "abcd\n", 0), 0);
    CHECK_TEXT(decoded(&log), "0 3 2\n0 5 1\n0 6 1\n");
    CHECK_INT(session_tokens(&s, "abcd\n", 0), 0);
    CHECK_TEXT(decoded(&log), "0 4 1\n0 5 1\n0 6 1\n");
    buf_free(&log);
    session_close(&s);
}

static void what_a_prompt_cache_holds_is_not_decoded_again(void) {
    struct session s;
    struct buf log = {0};
    CHECK_INT(session_open(&s, BYTES_HEAD WEIGHTS), 0);
    CHECK_INT(session_save(&s, "a long beginning", "cache.bin"), 0);
    session_close(&s);
    CHECK_INT(session_open(&s, BYTES_HEAD WEIGHTS), 0);
    CHECK_INT(rkllm_load_prompt_cache(s.handle, "cache.bin"), 0);
    decoded(&log);
    CHECK_INT(session_tokens(&s, "a long beginning and\n", 0), 0);
    CHECK_TEXT(decoded(&log), "0 16 5\n0 21 1\n0 22 1\n");
    /* Also after another prompt, as long as the file stays loaded. */
    CHECK_INT(session_tokens(&s, "so", 0), 0);
    CHECK_TEXT(decoded(&log), "0 0 2\n0 2 1\n");
    CHECK_INT(session_tokens(&s, "a long beginning\n", 0), 0);
    CHECK_TEXT(decoded(&log), "0 16 1\n0 17 1\n0 18 1\n");
    CHECK_INT(rkllm_release_prompt_cache(s.handle), 0);
    CHECK_INT(session_tokens(&s, "so", 0), 0);
    decoded(&log);
    CHECK_INT(session_tokens(&s, "a long\n", 0), 0);
    CHECK_TEXT(decoded(&log), "0 0 7\n0 7 1\n0 8 1\n");
    session_close(&s);
    CHECK_INT(session_open(&s, BYTES_HEAD "weights /dev/zero\n"), 0);
    CHECK_INT(rkllm_load_prompt_cache(s.handle, "cache.bin"), -1);
    session_close(&s);
    unlink("cache.bin");
    buf_free(&log);
}

static void a_long_prompt_is_decoded_in_parts(void) {
    struct session s;
    struct buf log = {0}, text = {0};
    buf_fill(&text, 'x', 600);
    CHECK_INT(session_open(&s, BYTES_HEAD WEIGHTS), 0);
    decoded(&log);
    CHECK_INT(session_tokens(&s, buf_text(&text), 0), 0);
    CHECK_TEXT(decoded(&log), "0 0 256\n0 256 256\n0 512 88\n");
    buf_free(&log);
    buf_free(&text);
    session_close(&s);
}

static void hidden_states_are_those_of_the_weights(void) {
    struct session s;
    CHECK_INT(session_open(&s, BYTES_HEAD WEIGHTS), 0);
    CHECK_INT(session_rows(&s, "abc", RKLLM_INFER_GET_LAST_HIDDEN_LAYER), 0);
    CHECK(s.row_count == 3 && s.row_width == WIDTH && !s.rows_are_logits);
    for (int i = 0; i < 3; i++) CHECK(s.rows[i * WIDTH] == (float)('a' + i) && s.rows[i * WIDTH + 1] == (float)i);
    CHECK_INT(session_tokens(&s, "x\n", 0), 0);
    CHECK_TEXT(buf_text(&s.text), "ok<|im_end|>");
    session_close(&s);
}

static void logits_are_as_wide_as_the_model(void) {
    struct session s;
    CHECK_INT(session_open(&s, BYTES_HEAD WEIGHTS), 0);
    CHECK_INT(session_rows(&s, "a\n", RKLLM_INFER_GET_LOGITS), 0);
    CHECK(s.row_count == 2 && s.row_width == SIZE && s.rows_are_logits);
    CHECK(s.rows[SIZE + 'o'] == 20 && s.rows[SIZE + 'k'] == 0);
    session_close(&s);
}

static void rows_of_numbers_are_evaluated_as_embeddings(void) {
    struct session s;
    struct buf log = {0};
    float rows[3 * WIDTH] = {'a', 0, 0, 0, 0, 0, 0, 0, '\n', .5f, 0, 0, 0, 0, 0, 0, '\n', .25f, 0, 0, 0, 0, 0, 0};
    RKLLMInput input = {.input_type = RKLLM_INPUT_EMBED, .embed_input = {rows, 3}};
    CHECK_INT(session_open(&s, BYTES_HEAD WEIGHTS), 0);
    decoded(&log);
    CHECK_INT(session_input(&s, &input, 0), 0);
    CHECK_TEXT(decoded(&log), "0 0 1\n0 1 2 rows\n0 3 1\n0 4 1\n");
    CHECK_TEXT(buf_text(&s.text), "ok<|im_end|>");
    buf_free(&log);
    session_close(&s);
}

#if RKLLM_ABI >= 121
static void every_entry_of_a_batch_has_its_own_sequence(void) {
    struct session s;
    struct buf log = {0};
    struct session_options options = {.n_batch = 2, .max_new_tokens = 1};
    int32_t one[] = {'a'}, two[] = {'b', '\n'};
    RKLLMInput inputs[] = {{.input_type = RKLLM_INPUT_TOKEN, .token_input = {one, 1}},
                           {.input_type = RKLLM_INPUT_TOKEN, .token_input = {two, 2}}};
    CHECK_INT(session_open_with(&s, BYTES_HEAD WEIGHTS, &options), 0);
    decoded(&log);
    CHECK_INT(session_input(&s, inputs, 0), 0);
    CHECK_TEXT(decoded(&log), "0 0 1\n1 0 2\n");
    buf_free(&log);
    session_close(&s);
}
#endif

static void faults_and_limits_stay_the_emulators(void) {
    struct session s;
    CHECK_INT(session_open(&s, BYTES_HEAD WEIGHTS "fault error after 1\n"), 0);
    CHECK_INT(session_tokens(&s, "a\n", 0), -1);
    CHECK_TEXT(buf_text(&s.text), "o");
    CHECK_INT(s.error, 1);
    session_close(&s);
    CHECK_INT(session_open(&s, BYTES_HEAD WEIGHTS "fault ignore-eos\n"), 0);
    s.abort_at = 9;
    CHECK_INT(session_tokens(&s, "a\n", 0), 0);
    CHECK(s.normal >= 9);
    session_close(&s);
}

static void weights_that_do_not_fit_are_refused(void) {
    struct session s;
    CHECK_INT(session_open(&s, BYTES_HEAD "weights no-such-file.gguf\n"), -1);
    session_close(&s);
    CHECK_INT(session_open(&s, BYTES_HEAD WEIGHTS "vocabulary_size 301\n"), -1);
    session_close(&s);
    CHECK_INT(session_open(&s, BYTES_HEAD "weights\n"), -1);
    session_close(&s);
}

static void a_low_temperature_takes_the_likeliest_and_a_high_one_varies(void) {
    float logits[4] = {1, 3, 2, -5};
    struct sampling how = {.top_k = 40, .top_p = 1, .temperature = 0, .repeat_penalty = 1};
    uint64_t state = 7;
    int counts[4] = {0};
    CHECK_INT(sampling_draw(&how, logits, 4, NULL, 0, &state), 1);
    how.temperature = 1;
    for (int i = 0; i < 4000; i++) counts[sampling_draw(&how, logits, 4, NULL, 0, &state)]++;
    /* The softmax of 1, 3, 2 and -5. */
    CHECK(fabs(counts[1] / 4000.0 - .665) < .04 && fabs(counts[2] / 4000.0 - .245) < .04 && counts[3] < 20);
    how.top_k = 1;
    CHECK_INT(sampling_draw(&how, logits, 4, NULL, 0, &state), 1);
    how.top_k = 40;
    how.top_p = .5f;
    for (int i = 0; i < 100; i++) CHECK_INT(sampling_draw(&how, logits, 4, NULL, 0, &state), 1);
}

static void penalties_make_what_came_lately_less_likely(void) {
    float logits[4] = {1, 3, 2.5f, -5};
    int32_t recent[] = {1, 1, -7, 99};
    struct sampling how = {.top_k = 1, .top_p = 1, .repeat_penalty = 2};
    uint64_t state = 7;
    CHECK_INT(sampling_draw(&how, logits, 4, recent, 4, &state), 2);
    how = (struct sampling){.top_k = 1, .repeat_penalty = 1, .frequency_penalty = .3f};
    CHECK_INT(sampling_draw(&how, logits, 4, recent, 4, &state), 2);
    how = (struct sampling){.top_k = 1, .repeat_penalty = 1, .presence_penalty = .3f};
    CHECK_INT(sampling_draw(&how, logits, 4, recent, 4, &state), 1);
}

static const struct check_test tests[] = {
    {"the answer comes from the weights", the_answer_comes_from_the_weights},
    {"only what the cache lacks is decoded", only_what_the_cache_lacks_is_decoded},
    {"what a prompt cache holds is not decoded again", what_a_prompt_cache_holds_is_not_decoded_again},
    {"a long prompt is decoded in parts", a_long_prompt_is_decoded_in_parts},
    {"hidden states are those of the weights", hidden_states_are_those_of_the_weights},
    {"logits are as wide as the model", logits_are_as_wide_as_the_model},
    {"rows of numbers are evaluated as embeddings", rows_of_numbers_are_evaluated_as_embeddings},
#if RKLLM_ABI >= 121
    {"every entry of a batch has its own sequence", every_entry_of_a_batch_has_its_own_sequence},
#endif
    {"faults and limits stay the emulator's", faults_and_limits_stay_the_emulators},
    {"weights that do not fit are refused", weights_that_do_not_fit_are_refused},
    {"a low temperature takes the likeliest and a high one varies",
     a_low_temperature_takes_the_likeliest_and_a_high_one_varies},
    {"penalties make what came lately less likely", penalties_make_what_came_lately_less_likely},
};

CHECK_FILE(weights, tests)
