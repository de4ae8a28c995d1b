/* placeholders.c: see placeholders.h. */

#include "placeholders.h"

#include <stdbool.h>
#include <string.h>

#include "json.h"

static bool is_sign(char c) { return c == '$' || c == '%'; }

/* Appends one captured text, escaped inside a JSON string. */
static void put_capture(const struct capture *capture, enum placeholder_place place, struct buf *out) {
    struct buf quoted = {0};
    if (!capture->text) return;
    if (place == PLACEHOLDERS_IN_TEXT) {
        buf_put(out, capture->text, capture->len);
        return;
    }
    json_write_string(&quoted, capture->text, capture->len);
    buf_put(out, quoted.data + 1, quoted.len - 2);
    buf_free(&quoted);
}

/* Appends pattern to out with its placeholders filled in; NULL captures fill them with nothing.
 * \$ and \% mean the signs themselves, \\$1 for a backslash and a placeholder. Where plain is not NULL it
 * receives one byte per byte appended: 1 for captured text, in which no control token may be recognised. */
void placeholders_fill(const char *pattern, enum placeholder_place place, const struct captures *captures,
                       struct buf *out, struct buf *plain) {
    for (const char *at = pattern; *at; at++) {
        bool captured = false;
        size_t before = out->len;
        if (at[0] == '\\' && at[1] == '\\' && is_sign(at[2])) {
            buf_puts(out, place == PLACEHOLDERS_IN_JSON ? "\\\\" : "\\");
            at++;
        } else if (at[0] == '\\' && is_sign(at[1])) {
            buf_putc(out, *++at);
        } else if (is_sign(at[0]) && at[1] >= '0' && at[1] <= '9') {
            bool user = *at++ == '$';
            captured = true;
            if (captures) put_capture(user ? &captures->user[*at - '0'] : &captures->result[*at - '0'], place, out);
        } else {
            buf_putc(out, *at);
        }
        if (plain) buf_fill(plain, captured ? 1 : 0, out->len - before);
    }
}
