/* prompt_view.c: see prompt_view.h.
 *
 * A marker of a user turn is recognised only where its control tokens really are control tokens: text that a user
 * typed and that looks like one does not begin or end a turn. Markers of tool results are looked for as text,
 * because families spell them with and without their own tokens. */

#include "prompt_view.h"

#include <stdlib.h>
#include <string.h>

#define NOT_FOUND ((size_t)-1)

/* Text with, for every byte, whether a special token brought it. */
struct marked {
    struct buf text, origin;
};

static void marked_free(struct marked *m) {
    buf_free(&m->text);
    buf_free(&m->origin);
}

/* Writes a marker as the prompt would carry it. */
static void marked_from_text(struct marked *m, const struct vocabulary *v, const char *text) {
    struct ids ids = {0};
    vocabulary_encode(v, text, strlen(text), NULL, &ids);
    vocabulary_decode(v, ids.data, ids.len, &m->text, &m->origin);
    ids_free(&ids);
}

/* True when the marker is at a position; with strict, its special bytes must be special there. */
static bool stands_at(const struct marked *prompt, size_t at, const struct marked *marker, bool strict) {
    size_t len = marker->text.len;
    if (!len || at + len > prompt->text.len || memcmp(prompt->text.data + at, marker->text.data, len)) return false;
    return !strict || memcmp(prompt->origin.data + at, marker->origin.data, len) == 0;
}

/* Returns the first position from start (and before end) where the marker is, or NOT_FOUND. */
static size_t find(const struct marked *prompt, size_t start, size_t end, const struct marked *marker, bool strict) {
    for (size_t at = start; at < end; at++)
        if (stands_at(prompt, at, marker, strict)) return at;
    return NOT_FOUND;
}

struct marker_set {
    struct marked user_open, user_close, result_open, result_close;
};

/* Finds the last user turn whose text is not a tool result; false when none exists. */
static bool find_user(const struct marked *prompt, const struct marker_set *markers, size_t *start, size_t *end) {
    for (size_t at = prompt->text.len; at-- > 0;) {
        if (!stands_at(prompt, at, &markers->user_open, true)) continue;
        *start = at + markers->user_open.text.len;
        if (stands_at(prompt, *start, &markers->result_open, false)) continue;
        *end = find(prompt, *start, prompt->text.len, &markers->user_close, true);
        if (*end == NOT_FOUND) *end = prompt->text.len;
        return true;
    }
    return false;
}

/* Counts the tool results from a position on and copies the last. */
static void read_results(struct prompt_view *view, const struct marked *prompt, const struct marker_set *markers,
                         size_t from) {
    const struct marked *open = &markers->result_open;
    size_t len = prompt->text.len;
    for (size_t at = find(prompt, from, len, open, false); at != NOT_FOUND;) {
        size_t start = at + open->text.len;
        size_t end = find(prompt, start, len, &markers->result_close, false);
        if (end == NOT_FOUND) end = len;
        free(view->result);
        view->result = mem_string_n(prompt->text.data + start, end - start);
        view->results++;
        at = find(prompt, end, len, open, false);
    }
}

/* Tells from the last word of the prompt whether a thinking block was opened or closed there. */
static enum thinking read_thinking(const struct marked *prompt) {
    static const char open[] = "<think>", close[] = "</think>";
    size_t len = prompt->text.len;
    while (len && strchr(" \r\n", prompt->text.data[len - 1])) len--;
    if (len >= 7 && !memcmp(prompt->text.data + len - 7, open, 7)) return THINKING_OPENED;
    if (len >= 8 && !memcmp(prompt->text.data + len - 8, close, 8)) return THINKING_CLOSED;
    return THINKING_FREE;
}

/* Copies what the prompt has begun of the answer: the text after the line of its last control token, without a closed
 * block of thoughts, whose marks need not be control tokens. */
static void read_begun(struct prompt_view *view, const struct marked *prompt) {
    size_t len = prompt->text.len, at = len;
    while (at && !prompt->origin.data[at - 1]) at--;
    if (!at) at = len; /* a text without turns */
    while (at < len && prompt->text.data[at] != '\n') at++;
    while (at < len && prompt->text.data[at] == '\n') at++;
    static const char open[] = "<think>", close[] = "</think>";
    if (len - at >= sizeof open - 1 && !memcmp(prompt->text.data + at, open, sizeof open - 1)) {
        size_t end = at;
        while (end + sizeof close - 1 <= len && memcmp(prompt->text.data + end, close, sizeof close - 1)) end++;
        if (end + sizeof close - 1 <= len)
            for (at = end + sizeof close - 1; at < len && prompt->text.data[at] == '\n';) at++;
    }
    view->begun = mem_string_n(prompt->text.data + at, len - at);
}

/* Writes the ids of a prompt as text; after each picture, in brackets, what it shows. */
static void read_text(struct marked *prompt, const struct vocabulary *v, const struct ids *ids,
                      const struct pictures *pictures, size_t noisy_from) {
    size_t written = 0;
    for (size_t at = 0; at < ids->len;) {
        bool is_row = ids->data[at] < 0;
        const struct picture *found = is_row ? pictures_find(pictures, ids->data + at, ids->len - at) : NULL;
        size_t step = found ? found->ids.len : 1;
        if (found) {
            size_t before;
            vocabulary_decode(v, ids->data + written, at - written, &prompt->text, &prompt->origin);
            before = prompt->text.len;
            buf_printf(&prompt->text, VOCABULARY_PICTURE "[%s]", at < noisy_from ? found->shown : "noise");
            buf_fill(&prompt->origin, 0, prompt->text.len - before);
            written = at + step;
        }
        at += step;
    }
    vocabulary_decode(v, ids->data + written, ids->len - written, &prompt->text, &prompt->origin);
}

/* Fills view from the ids of the whole context; the caller frees it with prompt_view_free. Pictures from noisy_from on
 * are not seen as what they are. */
void prompt_view_read(struct prompt_view *view, const struct script *script, const struct ids *ids,
                      const struct pictures *pictures, size_t noisy_from) {
    const struct vocabulary *v = script->vocabulary;
    struct marked prompt = {0};
    struct marker_set markers = {0};
    size_t start = 0, end = 0;
    *view = (struct prompt_view){.result = mem_string("")};
    read_text(&prompt, v, ids, pictures, noisy_from);
    buf_put(&prompt.text, "", 0);
    for (size_t i = 0; i < prompt.text.len; i++)
        if (!prompt.text.data[i]) prompt.text.data[i] = ' ';
    marked_from_text(&markers.user_open, v, script->user.open);
    marked_from_text(&markers.user_close, v, script->user.close);
    marked_from_text(&markers.result_open, v, script->result.open);
    marked_from_text(&markers.result_close, v, script->result.close);
    if (!find_user(&prompt, &markers, &start, &end)) end = prompt.text.len;
    view->text = mem_string_n(prompt.text.data, prompt.text.len);
    view->user = mem_string_n(prompt.text.data + start, end - start);
    read_results(view, &prompt, &markers, start ? end : 0);
    view->thinking = read_thinking(&prompt);
    read_begun(view, &prompt);
    marked_free(&prompt);
    marked_free(&markers.user_open);
    marked_free(&markers.user_close);
    marked_free(&markers.result_open);
    marked_free(&markers.result_close);
}

/* Frees what the view owns. */
void prompt_view_free(struct prompt_view *view) {
    free(view->text);
    free(view->user);
    free(view->result);
    free(view->begun);
    *view = (struct prompt_view){0};
}
