/* test_parts.c: the emulator's parts by themselves: text, JSON, vocabularies, the words of a line. */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "json.h"
#include "placeholders.h"
#include "script_words.h"
#include "session.h"
#include "utf8.h"
#include "vocabulary.h"

static void utf8_knows_where_a_character_stops(void) {
    CHECK(utf8_ends_inside_character("\xe6", 1));
    CHECK(utf8_ends_inside_character("a\xe6\x9d", 3));
    CHECK(!utf8_ends_inside_character("\xe6\x9d\xb1", 3));
    CHECK(utf8_ends_inside_character("\xf0\x9f\x8c", 3));
    CHECK(!utf8_ends_inside_character("", 0));
    CHECK(!utf8_ends_inside_character("\x80", 1));
    CHECK(!utf8_ends_inside_character("\xff", 1));
    CHECK(!utf8_ends_inside_character("\xe6z", 2));
    CHECK(!utf8_ends_inside_character("\xe0\x80", 2));
    CHECK(!utf8_ends_inside_character("\xed\xa0", 2));
    CHECK_INT(utf8_width("\xed\xa0\x80", 3), 0);
    CHECK_INT(utf8_width("\xf0\x9f\x8c\x9e", 4), 4);
}

static void expect_json(const char *text, const char *written) {
    struct buf error = {0}, out = {0};
    struct json_document *doc = json_parse(text, strlen(text), &error);
    if (doc) json_write(&out, json_root(doc));
    CHECK_TEXT(doc ? buf_text(&out) : "refused", written);
    json_free(doc);
    buf_free(&error);
    buf_free(&out);
}

static void json_reads_what_is_json_and_refuses_the_rest(void) {
    expect_json(" { \"a\" : [1, -2.5e3, true, null, \"x\\ny\\u6771\\ud83c\\udf1e\"] } ",
                "{\"a\":[1,-2.5e3,true,null,\"x\\ny\xe6\x9d\xb1\xf0\x9f\x8c\x9e\"]}");
    expect_json("{}", "{}");
    expect_json("\"\\ud800\"", "\"\xef\xbf\xbd\"");
    const char *wrong[] = {"",       "{",        "[1,]",       "{\"a\"}",     "{\"a\":}", "\"x",    "tru",
                           "1 2",    "\"\\q\"",  "{a:1}",      "[1 2]",       "\"\\u12\"", "-",     "\"\\"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) expect_json(wrong[i], "refused");
    char deep[200];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    expect_json(deep, "refused");
}

static void json_strings_are_written_so_that_any_reader_takes_them(void) {
    struct buf out = {0};
    json_write_string(&out, "a\"\\\n\x01\xff\xe6\x9d\xb1", 9);
    CHECK_TEXT(buf_text(&out), "\"a\\\"\\\\\\n\\u0001\\ufffd\xe6\x9d\xb1\"");
    buf_free(&out);
}

/* Checks that text becomes the ids and comes back as it was. */
static void expect_ids(const struct vocabulary *v, const char *text, const int32_t *ids, size_t count) {
    struct ids got = {0};
    struct buf back = {0};
    vocabulary_encode(v, text, strlen(text), NULL, &got);
    CHECK_INT(got.len, count);
    for (size_t i = 0; i < got.len && i < count; i++) CHECK_INT(got.data[i], ids[i]);
    vocabulary_decode(v, got.data, got.len, &back, NULL);
    CHECK_TEXT(buf_text(&back), text);
    ids_free(&got);
    buf_free(&back);
}

static void bytes_are_a_vocabulary_and_control_tokens_are_recognised_in_text(void) {
    struct vocabulary *v = vocabulary_of_bytes();
    vocabulary_add_control(v, 256, "<|im_end|>", 10, true);
    vocabulary_finish(v);
    expect_ids(v, "\xe6\x9d\xb1<|im_end|>a", (int32_t[]){0xe6, 0x9d, 0xb1, 256, 'a'}, 5);
    expect_ids(v, "<|im_en", (int32_t[]){'<', '|', 'i', 'm', '_', 'e', 'n'}, 7);
    CHECK(vocabulary_is_special(v, 256) && !vocabulary_is_special(v, 'a') && !vocabulary_has(v, 257));
    CHECK_INT(vocabulary_find(v, "<|im_end|>"), 256);
    CHECK_INT(vocabulary_find(v, "ab"), -1);
    vocabulary_free(v);
}

static void captured_text_never_becomes_a_control_token(void) {
    struct vocabulary *v = vocabulary_of_bytes();
    struct ids ids = {0};
    vocabulary_add_control(v, 256, "<s>", 3, true);
    vocabulary_finish(v);
    vocabulary_encode(v, "<s><s>", 6, (const char[]){0, 0, 0, 1, 1, 1}, &ids);
    CHECK_INT(ids.len, 4);
    CHECK_INT(ids.data[0], 256);
    CHECK_INT(ids.data[1], '<');
    ids_free(&ids);
    vocabulary_free(v);
}

static struct vocabulary *load(const char *json) {
    struct buf error = {0};
    write_file("tokenizer-under-test.json", json);
    struct vocabulary *v = vocabulary_load("tokenizer-under-test.json", &error);
    if (v) vocabulary_finish(v);
    unlink("tokenizer-under-test.json");
    buf_free(&error);
    return v;
}

static void a_byte_level_tokenizer_is_read(void) {
    struct vocabulary *v = load("{\"added_tokens\": [{\"id\": 4, \"content\": \"<|im_end|>\", \"special\": true},"
                                "{\"id\": 5, \"content\": \"<tool_call>\", \"special\": false}],"
                                "\"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"vocab\":"
                                "{\"a\": 0, \"\xc4\xa0" "a\": 1, \"\xc3\xa6\xc4\xbf\xc2\xb1\": 2, \"\xc3\xa6\": 3}}}");
    CHECK(v != NULL);
    if (!v) return;
    expect_ids(v, "a a\xe6\x9d\xb1<|im_end|><tool_call>", (int32_t[]){0, 1, 2, 4, 5}, 5);
    CHECK(vocabulary_is_special(v, 4) && !vocabulary_is_special(v, 5));
    vocabulary_free(v);
}

static void a_sentencepiece_tokenizer_is_read(void) {
    struct vocabulary *v = load("{\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteFallback\"}]},"
                                "\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"<unk>\", 0], [\"<0xE6>\", -1],"
                                "[\"\xe2\x96\x81" "hi\", -2], [\"hi\", -3], [\"<0x0A>\", -4]]}}");
    CHECK(v != NULL);
    if (!v) return;
    expect_ids(v, "hi hi\n\xe6", (int32_t[]){3, 2, 4, 1}, 4);
    vocabulary_free(v);
}

static void a_file_that_is_no_tokenizer_is_refused(void) {
    const char *wrong[] = {"", "{}", "[1]", "{\"model\": {\"vocab\": 7}}", "{\"model\": "};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) CHECK(load(wrong[i]) == NULL);
}

static void words_and_strings_of_a_line_come_apart(void) {
    char line[] = "  one \"two words\\n\\\"q\\\"\" three  # comment";
    char *at = line;
    struct buf word = {0};
    CHECK(words_next(&at, &word));
    CHECK_TEXT(buf_text(&word), "one");
    CHECK(words_next(&at, &word));
    CHECK_TEXT(buf_text(&word), "two words\n\"q\"");
    CHECK(words_next(&at, &word));
    CHECK_TEXT(buf_text(&word), "three");
    CHECK(!words_next(&at, &word) && !*at);
    char open[] = "\"does not end";
    at = open;
    CHECK(!words_next(&at, &word) && *at == '"');
    buf_free(&word);
}

static void placeholders_are_filled_and_escaped_where_they_stand(void) {
    struct captures captures = {.user[1] = {"a\"b", 3}, .result[2] = {"5", 1}};
    struct buf out = {0}, plain = {0};
    placeholders_fill("$1 %2 $9 \\$1 100% \\\\$1", PLACEHOLDERS_IN_TEXT, &captures, &out, &plain);
    CHECK_TEXT(buf_text(&out), "a\"b 5  $1 100% \\a\"b");
    CHECK(plain.len == out.len && plain.data[0] == 1 && plain.data[3] == 0 && plain.data[4] == 1);
    buf_clear(&out);
    placeholders_fill("{\"x\": \"$1\", \"n\": %2}", PLACEHOLDERS_IN_JSON, &captures, &out, NULL);
    CHECK_TEXT(buf_text(&out), "{\"x\": \"a\\\"b\", \"n\": 5}");
    buf_free(&out);
    buf_free(&plain);
}

static const struct check_test tests[] = {
    {"utf8 knows where a character stops", utf8_knows_where_a_character_stops},
    {"json reads what is JSON and refuses the rest", json_reads_what_is_json_and_refuses_the_rest},
    {"json strings are written so that any reader takes them", json_strings_are_written_so_that_any_reader_takes_them},
    {"bytes are a vocabulary and control tokens are recognised in text",
     bytes_are_a_vocabulary_and_control_tokens_are_recognised_in_text},
    {"captured text never becomes a control token", captured_text_never_becomes_a_control_token},
    {"a byte-level tokenizer is read", a_byte_level_tokenizer_is_read},
    {"a sentencepiece tokenizer is read", a_sentencepiece_tokenizer_is_read},
    {"a file that is no tokenizer is refused", a_file_that_is_no_tokenizer_is_refused},
    {"words and strings of a line come apart", words_and_strings_of_a_line_come_apart},
    {"placeholders are filled and escaped where they stand", placeholders_are_filled_and_escaped_where_they_stand},
};

CHECK_FILE(parts, tests)
