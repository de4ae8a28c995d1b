/* test_inputs.c: everything a run can be given in addition to text and tokens: pictures, embeddings, several inputs at once,
 * an adapter, the callbacks of the host. */

#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "session.h"

#define WIDTH 8
#define SEEING                                                                                                        \
    BYTES_HEAD "hidden 8\nrule two\n user \xef\xbf\xbc.*\xef\xbf\xbc\n say two pictures\n"                            \
               "rule one\n user \xef\xbf\xbc\n say a picture\nrule none\n say blind\n"
#define TURN(text) "<|im_start|>user\n" text "<|im_end|>\n<|im_start|>assistant\n"

/* Rows as a vision encoder makes them: no number of a token, and no two alike. */
static void paint(float *rows, size_t count, float colour) {
    for (size_t i = 0; i < count * WIDTH; i++) rows[i] = colour + (float)i / 7;
}

/* Makes an input of pictures, three rows each, in the shape of the family. */
static RKLLMInput picture(char *prompt, float *rows, size_t count) {
    RKLLMInput input;
    memset(&input, 0, sizeof input);
    input.input_type = RKLLM_INPUT_MULTIMODAL;
    input.multimodal_input.prompt = prompt;
#if RKLLM_ABI >= 130
    input.multimodal_input.image.image_embed = rows;
    input.multimodal_input.image.n_image_tokens = 3;
    input.multimodal_input.image.n_image = count;
    input.multimodal_input.image.image_start = "<|im_start|>[";
    input.multimodal_input.image.image_end = "]";
    input.multimodal_input.image.image_content = "?";
#else
    input.multimodal_input.image_embed = rows;
    input.multimodal_input.n_image_tokens = 3;
#if RKLLM_ABI >= 121
    input.multimodal_input.n_image = count;
#else
    (void)count;
#endif
#endif
    return input;
}

static void a_picture_stands_where_its_tag_was(void) {
    struct session s;
    char prompt[] = TURN("<image>what is it?");
    float rows[3 * WIDTH];
    paint(rows, 3, 0.5f);
    RKLLMInput input = picture(prompt, rows, 1);
    CHECK_INT(session_open(&s, SEEING), 0);
    CHECK_INT(session_input(&s, &input, 0), 0);
    CHECK_TEXT(buf_text(&s.text), "a picture<|im_end|>");
#if RKLLM_ABI >= 121
    int marks = 1 + 1 + 1, text = (int)strlen("xuser\nwhat is it?x\nxassistant\n");
    CHECK_INT(s.perf.prefill_tokens, text + marks + 3);
    CHECK_INT(session_input(&s, &input, 0), 0);
    CHECK_INT(s.perf.prefill_tokens, 1);
    paint(rows, 3, 0.25f);
    CHECK_INT(session_input(&s, &input, 0), 0);
    CHECK_INT(s.perf.prefill_tokens, text + marks + 3 - (int)strlen("xuser\nx["));
#endif
    session_close(&s);
}

static void a_model_without_pictures_in_its_words_still_takes_text(void) {
    struct session s;
    CHECK_INT(session_open(&s, SEEING), 0);
    CHECK_INT(session_tokens(&s, TURN("what is it?"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "blind<|im_end|>");
    session_close(&s);
}

#if RKLLM_ABI >= 121
static void several_pictures_follow_their_tags(void) {
    struct session s;
    char prompt[] = TURN("<image> or <image>?");
    float rows[6 * WIDTH];
    paint(rows, 6, 0.5f);
    RKLLMInput input = picture(prompt, rows, 2);
    CHECK_INT(session_open(&s, SEEING), 0);
    CHECK_INT(session_input(&s, &input, 0), 0);
    CHECK_TEXT(buf_text(&s.text), "two pictures<|im_end|>");
    session_close(&s);
}
#endif

static void pictures_that_do_not_go_with_their_text_are_refused(void) {
    struct session s;
    char tagged[] = "<image>", untagged[] = "no tag", twice[] = "<image><image>";
    float rows[6 * WIDTH];
    paint(rows, 6, 0.5f);
    RKLLMInput inputs[] = {picture(untagged, rows, 1), picture(twice, rows, 1), picture(tagged, NULL, 1),
                           picture(NULL, rows, 1), picture(tagged, rows, 1)};
#if RKLLM_ABI >= 130
    inputs[4].multimodal_input.image.n_image_tokens = 0;
#else
    inputs[4].multimodal_input.n_image_tokens = 0;
#endif
    CHECK_INT(session_open(&s, SEEING), 0);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) CHECK_INT(session_input(&s, &inputs[i], 0), -1);
    CHECK_INT(s.normal + s.finish + s.error, 0);
    session_close(&s);
}

#if RKLLM_ABI >= 130
static void a_video_is_all_its_frames(void) {
    struct session s;
    char prompt[] = "<video> and <image>";
    float frames[4 * WIDTH], rows[3 * WIDTH];
    paint(frames, 4, 0.5f);
    paint(rows, 3, 0.125f);
    RKLLMInput input = picture(prompt, rows, 1);
    input.multimodal_input.video.video_embed = frames;
    input.multimodal_input.video.n_frame_tokens = 2;
    input.multimodal_input.video.n_frame_per_video = 2;
    input.multimodal_input.video.n_video = 1;
    CHECK_INT(session_open(&s, SEEING), 0);
    CHECK_INT(session_input(&s, &input, 0), 0);
    CHECK_TEXT(buf_text(&s.text), "two pictures<|im_end|>");
    CHECK_INT(s.perf.prefill_tokens, 4 + (int)strlen(" and x[]") + 3);
    input.multimodal_input.video.n_video = 0;
    CHECK_INT(session_input(&s, &input, 0), -1);
    session_close(&s);
}

#if RKLLM_ABI >= 131
static void audio_is_refused_before_anything_runs(void) {
    struct session s;
    char prompt[] = TURN("<image>what is it?");
    float rows[3 * WIDTH];
    paint(rows, 3, 0.5f);
    RKLLMInput input = picture(prompt, rows, 1);
    CHECK_INT(session_open(&s, SEEING), 0);
    input.multimodal_input.audio.n_audio = 1;
    input.multimodal_input.audio.audio_embed = rows;
    CHECK_INT(session_input(&s, &input, 0), -1);
    CHECK_INT(s.normal + s.finish + s.error, 0);
    input.multimodal_input.audio.audio_embed = NULL;
    CHECK_INT(session_input(&s, &input, 0), 0);
    CHECK_TEXT(buf_text(&s.text), "a picture<|im_end|>");
    session_close(&s);
}

/* Its struct ends before the audio: what is there is whatever its stack held. */
static void a_program_built_for_1_3_0_shows_its_picture(void) {
    struct session s;
    char prompt[] = TURN("<image>what is it?");
    float rows[3 * WIDTH];
    paint(rows, 3, 0.5f);
    RKLLMInput input = picture(prompt, rows, 1);
    memset(&input.multimodal_input.audio, 0xa5, sizeof input.multimodal_input.audio);
    CHECK_INT(session_open(&s, SEEING), 0);
    CHECK_INT(session_input(&s, &input, 0), 0);
    CHECK_TEXT(buf_text(&s.text), "a picture<|im_end|>");
    session_close(&s);
}
#endif

/* Cuts text into bytes, as the vocabulary does; counts how often it was asked. */
static int cut(void *userdata, const char *text, int32_t len, int32_t *tokens, int32_t room) {
    struct session *s = userdata;
    s->kept = "asked";
    if (len > room || strstr(text, "refuse")) return -1;
    for (int i = 0; i < len; i++) tokens[i] = (unsigned char)text[i];
    return len;
}

static uint64_t embedded; /* how many tokens the host was asked for */

/* Fills the rows it is asked for; refuses the letter Z. */
static int embed(void *userdata, int32_t *tokens, uint64_t count, void *rows, uint64_t bytes) {
    (void)userdata;
    CHECK_INT(bytes, count * WIDTH * sizeof(float));
    memset(rows, 1, bytes);
    embedded += count;
    return count == 1 && tokens[0] == 'Z' ? -1 : 0;
}

static void a_model_without_tokenizer_asks_the_host_and_delivers_ids(void) {
    struct session s;
    struct session_options options = {.tokenizer = cut};
    CHECK_INT(session_open(&s, BYTES_HEAD "without tokenizer\n"), -1);
    session_close(&s);
    CHECK_INT(session_open_with(&s, BYTES_HEAD "without tokenizer\nrule\n prompt question\n say ok\n", &options), 0);
    CHECK_INT(session_ask(&s, "a question", 0), 0);
    CHECK_TEXT(s.kept, "asked");
    CHECK_TEXT(buf_text(&s.text), "");
    CHECK(s.tokens.len == 3 && s.tokens.data[0] == 'o' && s.null_texts == 0);
    CHECK_INT(session_ask(&s, "refuse", 0), -1);
    session_close(&s);
}

static void a_model_without_embedding_asks_the_host_for_every_token(void) {
    struct session s;
    struct session_options options = {.embed = embed};
    CHECK_INT(session_open(&s, BYTES_HEAD "without embedding\n"), -1);
    session_close(&s);
    CHECK_INT(session_open_with(&s, BYTES_HEAD "hidden 8\nwithout embedding\nrule\n say ok\n", &options), 0);
    CHECK_INT(session_tokens(&s, "abc", 0), 0);
    CHECK_INT(embedded, 3 + 2);
    session_forget(&s);
    CHECK_INT(session_tokens(&s, "Z", 0), -1);
    CHECK(s.error == 1 && s.normal == 0);
    session_close(&s);
}
#else
static void a_model_that_lacks_a_part_cannot_be_opened_before_1_3(void) {
    struct session s;
    CHECK_INT(session_open(&s, BYTES_HEAD "without tokenizer\n"), -1);
    session_close(&s);
    CHECK_INT(session_open(&s, BYTES_HEAD "without embedding\n"), -1);
    session_close(&s);
}
#endif

static void a_row_of_an_embedding_is_a_token_or_a_piece_of_a_picture(void) {
    struct session s;
    float rows[6 * WIDTH] = {0};
    for (int i = 0; i < 5; i++) rows[i * WIDTH] = (float)"hello"[i];
    paint(rows + 5 * WIDTH, 1, 0.5f);
    RKLLMInput input = {.input_type = RKLLM_INPUT_EMBED, .embed_input = {rows, 5}};
    CHECK_INT(session_open(&s, BYTES_HEAD "hidden 8\nrule a\n prompt ^hello$\n say words\nrule b\n say picture\n"), 0);
    CHECK_INT(session_input(&s, &input, 0), 0);
    CHECK_TEXT(buf_text(&s.text), "words<|im_end|>");
    session_forget(&s);
    input.embed_input.n_tokens = 6;
    CHECK_INT(session_input(&s, &input, 0), 0);
    CHECK_TEXT(buf_text(&s.text), "picture<|im_end|>");
    session_close(&s);
}

static void a_rule_can_ask_for_an_adapter_and_the_cache_belongs_to_one(void) {
    struct session s;
    RKLLMLoraAdapter adapter = {"lora.bin", "pirate", 1.0f};
    RKLLMLoraParam chosen = {"pirate"};
    RKLLMInput input = {.input_type = RKLLM_INPUT_PROMPT, .prompt_input = "hello"};
    RKLLMInferParam infer = {.mode = RKLLM_INFER_GENERATE, .lora_params = &chosen}, plain = {.lora_params = NULL};
    write_file("lora.bin", "adapter");
    CHECK_INT(session_open(&s, BYTES_HEAD "rule\n lora pirate\n say arr\nrule\n lora -\n say hello\n"), 0);
    CHECK_INT(rkllm_load_lora(s.handle, &adapter), 0);
    CHECK_INT(rkllm_run(s.handle, &input, &infer, &s), 0);
    CHECK_TEXT(buf_text(&s.text), "arr<|im_end|>");
    session_forget(&s);
    CHECK_INT(rkllm_run(s.handle, &input, &plain, &s), 0);
    CHECK_TEXT(buf_text(&s.text), "hello<|im_end|>");
#if RKLLM_ABI >= 121
    CHECK_INT(s.perf.prefill_tokens, 5);
    CHECK_INT(rkllm_run(s.handle, &input, &plain, &s), 0);
    CHECK_INT(s.perf.prefill_tokens, 1);
#endif
    session_close(&s);
    unlink("lora.bin");
}

#if RKLLM_ABI >= 121
#define PAIR BYTES_HEAD "hidden 8\nrule\n prompt short\n say ab\nrule\n prompt long\n say wxyz\n"

static struct buf second; /* what the second entry of a batch said */
static int second_ended;  /* how often it was told to have ended */

/* Notes the second result of every callback. */
static void note_second(struct session *s, RKLLMResult *results) {
    (void)s;
    if (results[1].text) buf_puts(&second, results[1].text);
    if (results[1].token_id < 0) second_ended++;
    if (results[1].token_id < 0 && !s->row_width) CHECK(results[1].text == NULL);
}

static void entries_of_a_batch_go_on_side_by_side_until_the_last_has_ended(void) {
    struct session s;
    struct session_options options = {.n_batch = 2};
    RKLLMInput inputs[2] = {{.input_type = RKLLM_INPUT_PROMPT, .prompt_input = "a long one"},
                            {.input_type = RKLLM_INPUT_PROMPT, .prompt_input = "a short one"}};
    int sizes[2] = {0};
    second_ended = 0;
    CHECK_INT(session_open_with(&s, PAIR, &options), 0);
    s.on_token = note_second;
    CHECK_INT(session_input(&s, inputs, 0), 0);
    CHECK_TEXT(buf_text(&s.text), "wxyz<|im_end|>");
    CHECK_TEXT(buf_text(&second), "ab<|im_end|>");
    CHECK(second_ended == 2 && s.normal == 5 && s.finish == 1);
    CHECK_INT(s.perf.prefill_tokens, strlen("a long one") + strlen("a short one"));
    CHECK_INT(rkllm_get_kv_cache_size(s.handle, sizes), 0);
    CHECK(sizes[0] == 10 + 4 && sizes[1] == 11 + 2);
    CHECK_INT(session_input(&s, inputs, 0), 0);
    CHECK_INT(s.perf.prefill_tokens, 2);
    inputs[1].prompt_input = NULL;
    CHECK_INT(session_input(&s, inputs, 0), -1);
    buf_free(&second);
    session_close(&s);
}

static void a_batch_has_hidden_states_but_no_logits(void) {
    struct session s;
    struct session_options options = {.n_batch = 2};
    RKLLMInput inputs[2] = {{.input_type = RKLLM_INPUT_PROMPT, .prompt_input = "long"},
                            {.input_type = RKLLM_INPUT_PROMPT, .prompt_input = "short"}};
    RKLLMInferParam infer = {.mode = RKLLM_INFER_GET_LAST_HIDDEN_LAYER};
    CHECK_INT(session_open_with(&s, PAIR, &options), 0);
    CHECK_INT(rkllm_run(s.handle, inputs, &infer, &s), 0);
    CHECK(s.row_count == 4 && s.row_width == 8);
    infer.mode = RKLLM_INFER_GET_LOGITS;
    CHECK_INT(rkllm_run(s.handle, inputs, &infer, &s), -1);
    session_close(&s);
}

static void ranges_of_a_paused_batch_are_cleared_entry_by_entry(void) {
    struct session s;
    struct session_options options = {.n_batch = 2};
    RKLLMInput inputs[2] = {{.input_type = RKLLM_INPUT_PROMPT, .prompt_input = "long"},
                            {.input_type = RKLLM_INPUT_PROMPT, .prompt_input = "short"}};
    int start[2] = {0, 1}, end[2] = {2, 4}, sizes[2];
    CHECK_INT(session_open_with(&s, PAIR, &options), 0);
    s.pause_at = 1;
    CHECK_INT(session_input(&s, inputs, 0), 0);
    CHECK_INT(rkllm_clear_kv_cache(s.handle, 0, start, end), 0);
    CHECK_INT(rkllm_get_kv_cache_size(s.handle, sizes), 0);
    CHECK(sizes[0] == 2 && sizes[1] == 2);
    session_forget(&s);
    CHECK_INT(session_input(&s, inputs, 0), 0);
    CHECK_TEXT(buf_text(&s.text), "xyz<|im_end|>");
    session_close(&s);
}
#endif

static const struct check_test tests[] = {
    {"a picture stands where its tag was", a_picture_stands_where_its_tag_was},
    {"a model without pictures in its words still takes text", a_model_without_pictures_in_its_words_still_takes_text},
    {"pictures that do not go with their text are refused", pictures_that_do_not_go_with_their_text_are_refused},
#if RKLLM_ABI >= 130
    {"a video is all its frames", a_video_is_all_its_frames},
#if RKLLM_ABI >= 131
    {"audio is refused before anything runs", audio_is_refused_before_anything_runs},
    {"a program built for 1.3.0 shows its picture", a_program_built_for_1_3_0_shows_its_picture},
#endif
    {"a model without tokenizer asks the host and delivers ids",
     a_model_without_tokenizer_asks_the_host_and_delivers_ids},
    {"a model without embedding asks the host for every token",
     a_model_without_embedding_asks_the_host_for_every_token},
#else
    {"a model that lacks a part cannot be opened before 1.3", a_model_that_lacks_a_part_cannot_be_opened_before_1_3},
#endif
    {"a row of an embedding is a token or a piece of a picture",
     a_row_of_an_embedding_is_a_token_or_a_piece_of_a_picture},
    {"a rule can ask for an adapter and the cache belongs to one",
     a_rule_can_ask_for_an_adapter_and_the_cache_belongs_to_one},
#if RKLLM_ABI >= 121
    {"several pictures follow their tags", several_pictures_follow_their_tags},
    {"entries of a batch go on side by side until the last has ended",
     entries_of_a_batch_go_on_side_by_side_until_the_last_has_ended},
    {"a batch has hidden states but no logits", a_batch_has_hidden_states_but_no_logits},
    {"ranges of a paused batch are cleared entry by entry", ranges_of_a_paused_batch_are_cleared_entry_by_entry},
#endif
};

CHECK_FILE(inputs, tests)
