/* test_numbers.c: hidden states, logits, reranking and the relevance after it, seen through the interface. */

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "relevance.h"
#include "session.h"

#define EMBEDDER BYTES_HEAD "hidden 128\n"
#define RERANKER                                                                                                      \
    BYTES_HEAD "piece yes no\nrule rerank\n user <Query>:(.*)<Document>:(.*)\n rank yes no\nrule other\n say fine\n"  \
               " logit a 3.5\n logit <|im_end|> -2\n"
#define TURN(text) "<|im_start|>user\n" text "<|im_end|>\n<|im_start|>assistant\n"

enum { YES = 259, NO = 260 };

/* Returns the number at a place of the rows noted last. */
static float at(const struct session *s, int row, int column) { return s->rows[row * s->row_width + column]; }

/* Returns the cosine between the last row noted and a vector. */
static double cosine(const struct session *s, const float *other) {
    double dot = 0, mine = 0, theirs = 0;
    for (int i = 0; i < s->row_width; i++) {
        double value = at(s, s->row_count - 1, i);
        dot += value * other[i], mine += value * value, theirs += (double)other[i] * other[i];
    }
    return dot / sqrt(mine * theirs);
}

static void hidden_states_come_for_every_token_between_an_empty_call_and_finish(void) {
    struct session s;
    CHECK_INT(session_open(&s, EMBEDDER), 0);
    CHECK_INT(session_rows(&s, "hello", RKLLM_INFER_GET_LAST_HIDDEN_LAYER), 0);
    CHECK(s.row_count == 5 && s.row_width == 128 && !s.rows_are_logits);
    CHECK(s.normal == 2 && s.finish == 1 && s.error == 0 && s.null_texts == 0);
    CHECK_TEXT(buf_text(&s.text), "");
#if RKLLM_ABI >= 121
    CHECK(s.perf.prefill_tokens == 5 && s.perf.generate_tokens == 1);
    CHECK_INT(session_cache_size(&s), 5);
#endif
    session_close(&s);
}

static void equal_tokens_give_equal_rows_in_another_handle(void) {
    struct session one, two;
    CHECK_INT(session_open(&one, EMBEDDER), 0);
    CHECK_INT(session_open(&two, EMBEDDER), 0);
    CHECK_INT(session_rows(&one, "hello", RKLLM_INFER_GET_LAST_HIDDEN_LAYER), 0);
    CHECK_INT(session_rows(&two, "hello there", RKLLM_INFER_GET_LAST_HIDDEN_LAYER), 0);
    CHECK(memcmp(one.rows, two.rows, 5 * 128 * sizeof(float)) == 0);
    session_close(&one);
    session_close(&two);
}

static void texts_that_share_words_are_closer(void) {
    static const char *const texts[] = {"the harbour of Lisbon at night", "at night the Harbour is quiet",
                                        "quarterly tax forms for bakers"};
    struct session s;
    float first[128];
    double near, far;
    CHECK_INT(session_open(&s, EMBEDDER), 0);
    session_rows(&s, texts[0], RKLLM_INFER_GET_LAST_HIDDEN_LAYER);
    memcpy(first, s.rows + (s.row_count - 1) * 128, sizeof first);
    CHECK(cosine(&s, first) > 0.999);
    session_clear(&s);
    session_rows(&s, texts[1], RKLLM_INFER_GET_LAST_HIDDEN_LAYER);
    near = cosine(&s, first);
    session_clear(&s);
    session_rows(&s, texts[2], RKLLM_INFER_GET_LAST_HIDDEN_LAYER);
    far = cosine(&s, first);
    CHECK(near > far + 0.2);
    session_close(&s);
}

static void tokens_that_were_cached_have_no_row(void) {
    struct session s;
    CHECK_INT(session_open(&s, EMBEDDER), 0);
    session_rows(&s, "hello", RKLLM_INFER_GET_LAST_HIDDEN_LAYER);
    session_rows(&s, "hello there", RKLLM_INFER_GET_LAST_HIDDEN_LAYER);
    CHECK_INT(s.row_count, 6);
    session_rows(&s, "hello there", RKLLM_INFER_GET_LAST_HIDDEN_LAYER);
    CHECK_INT(s.row_count, 1);
    session_close(&s);
}

static void rows_and_callbacks_can_be_fewer(void) {
    struct session s;
    CHECK_INT(session_open(&s, EMBEDDER "fault hidden-rows last\nfault logits-rows last\n"
                               "fault hidden-callbacks one\n"), 0);
    CHECK_INT(session_rows(&s, "hello", RKLLM_INFER_GET_LAST_HIDDEN_LAYER), 0);
    CHECK(s.row_count == 1 && s.normal == 1 && s.finish == 1);
    CHECK_INT(session_rows(&s, "goodbye", RKLLM_INFER_GET_LOGITS), 0);
    CHECK(s.row_count == 1 && s.rows_are_logits && s.normal == 2);
    session_close(&s);
}

static void a_model_can_need_its_cache_cleared_before_every_embedding(void) {
    struct session s;
    float right[128];
    CHECK_INT(session_open(&s, EMBEDDER "fault hidden-needs-clear\n"), 0);
    session_rows(&s, "hello", RKLLM_INFER_GET_LAST_HIDDEN_LAYER);
    memcpy(right, s.rows + 4 * 128, sizeof right);
    session_rows(&s, "hello", RKLLM_INFER_GET_LAST_HIDDEN_LAYER);
    CHECK(memcmp(right, s.rows + (s.row_count - 1) * 128, sizeof right) != 0);
#if RKLLM_ABI >= 121
    CHECK_INT(session_cache_size(&s), 10);
#endif
    session_clear(&s);
    session_rows(&s, "hello", RKLLM_INFER_GET_LAST_HIDDEN_LAYER);
    CHECK(memcmp(right, s.rows + 4 * 128, sizeof right) == 0);
    session_close(&s);
}

static void the_largest_logit_is_the_token_that_follows(void) {
    struct session s;
    CHECK_INT(session_open(&s, RERANKER), 0);
    CHECK_INT(session_rows(&s, TURN("abc"), RKLLM_INFER_GET_LOGITS), 0);
    CHECK_INT(s.row_width, 261);
    struct ids ids = {0};
    session_encode(TURN("abc") "f", &ids);
    CHECK_INT(s.row_count, ids.len - 1);
    for (int row = 0; row < s.row_count; row++)
        for (int id = 0; id < s.row_width; id++)
            if (id != ids.data[row + 1]) CHECK(at(&s, row, id) < at(&s, row, ids.data[row + 1]));
    CHECK(at(&s, s.row_count - 1, 'a') == 3.5f && at(&s, s.row_count - 1, IM_END) == -2);
    ids_free(&ids);
    session_close(&s);
}

/* Returns the share of "yes" in the softmax over the two logits of a reranking prompt. */
static double score(struct session *s, const char *prompt) {
    session_clear(s);
    session_rows(s, prompt, RKLLM_INFER_GET_LOGITS);
    double yes = exp(at(s, s->row_count - 1, YES)), no = exp(at(s, s->row_count - 1, NO));
    return yes / (yes + no);
}

static void a_reranker_weighs_yes_and_no_by_the_words_in_common(void) {
    struct session s;
    CHECK_INT(session_open(&s, RERANKER), 0);
    double half = score(&s, TURN("<Query>: red harbours\n<Document>: A red door and two Harbours, painted."));
    CHECK(half > 0.97);
    half = score(&s, TURN("<Query>: boats harbours\n<Document>: two harbours"));
    CHECK(half > 0.499 && half < 0.501);
    CHECK(score(&s, TURN("<Query>: harbours\n<Document>: taxes")) < 0.03);
    session_forget(&s);
    CHECK_INT(session_tokens(&s, TURN("<Query>: harbours\n<Document>: taxes"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "no<|im_end|>");
    session_close(&s);
}

static void relevance_counts_words_and_pairs_of_other_characters(void) {
    const char *query = "\xe6\x9d\xb1\xe4\xba\xac\xe3\x81\xae\xe5\xa4\xa9\xe6\xb0\x97"; /* 東京の天気 */
    const char *same = "\xe4\xbb\x8a\xe6\x97\xa5\xe3\x81\xae\xe6\x9d\xb1\xe4\xba\xac";   /* 今日の東京 */
    CHECK(relevance("", 0, "anything", 8) < 0.03);
    CHECK(relevance("a an it", 7, "a an it", 7) < 0.03);
    CHECK(relevance("Model RK3588", 12, "the rk3588 model", 16) > 0.97);
    CHECK(fabs(relevance(query, strlen(query), same, strlen(same)) - 0.25) < 1e-9);
}

static void a_callback_that_returns_1_gets_no_finish_and_leaves_nothing_to_resume(void) {
#if RKLLM_ABI >= 121
    struct session s;
    CHECK_INT(session_open(&s, RERANKER), 0);
    s.wish = 1;
    CHECK_INT(session_rows(&s, "abc", RKLLM_INFER_GET_LAST_HIDDEN_LAYER), 0);
    CHECK(s.normal == 1 && s.finish == 0);
    session_forget(&s);
    CHECK_INT(session_tokens(&s, TURN("x"), 0), 0);
    CHECK_TEXT(buf_text(&s.text), "fine<|im_end|>");
    session_forget(&s);
    s.wish = 2;
    CHECK_INT(session_rows(&s, "abcdef", RKLLM_INFER_GET_LAST_HIDDEN_LAYER), 0);
    CHECK(s.finish == 1);
    session_close(&s);
#endif
}

static void a_model_can_have_more_ids_than_its_tokenizer(void) {
    struct session s;
    CHECK_INT(session_open(&s, BYTES_HEAD "vocabulary_size 1000\n"), 0);
    CHECK_INT(session_rows(&s, "abc", RKLLM_INFER_GET_LOGITS), 0);
    CHECK_INT(s.row_width, 1000);
    int32_t padding = 999;
    RKLLMInput input = {.input_type = RKLLM_INPUT_TOKEN, .token_input = {&padding, 1}};
    CHECK_INT(session_input(&s, &input, 0), 0);
    session_close(&s);
    CHECK_INT(session_open(&s, BYTES_HEAD "vocabulary_size 258\n"), -1);
    session_close(&s);
}

static const struct check_test tests[] = {
    {"hidden states come for every token between an empty call and FINISH",
     hidden_states_come_for_every_token_between_an_empty_call_and_finish},
    {"equal tokens give equal rows in another handle", equal_tokens_give_equal_rows_in_another_handle},
    {"texts that share words are closer", texts_that_share_words_are_closer},
    {"tokens that were cached have no row", tokens_that_were_cached_have_no_row},
    {"rows and callbacks can be fewer", rows_and_callbacks_can_be_fewer},
    {"a model can need its cache cleared before every embedding",
     a_model_can_need_its_cache_cleared_before_every_embedding},
    {"the largest logit is the token that follows", the_largest_logit_is_the_token_that_follows},
    {"a reranker weighs yes and no by the words in common", a_reranker_weighs_yes_and_no_by_the_words_in_common},
    {"relevance counts words and pairs of other characters", relevance_counts_words_and_pairs_of_other_characters},
    {"a callback that returns 1 gets no FINISH and leaves nothing to resume",
     a_callback_that_returns_1_gets_no_finish_and_leaves_nothing_to_resume},
    {"a model can have more ids than its tokenizer", a_model_can_have_more_ids_than_its_tokenizer},
};

CHECK_FILE(numbers, tests)
