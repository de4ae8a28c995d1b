/* buffers.c: see buffers.h. */

#include "buffers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns bytes of zeroed memory that the caller frees with free(). Never NULL. */
void *mem_alloc(size_t bytes) {
    void *block = mem_grow(NULL, bytes);
    memset(block, 0, bytes);
    return block;
}

/* Resizes old (or allocates when it is NULL) and returns the block, which the caller owns. Never NULL. */
void *mem_grow(void *old, size_t bytes) {
    void *block = realloc(old, bytes ? bytes : 1);
    if (!block) {
        fputs("rkllm emulator: out of memory\n", stderr);
        abort();
    }
    return block;
}

/* Returns a copy of text that the caller frees; NULL gives NULL. */
char *mem_string(const char *text) { return text ? mem_string_n(text, strlen(text)) : NULL; }

/* Returns a NUL-terminated copy of len bytes that the caller frees. */
char *mem_string_n(const char *text, size_t len) {
    char *copy = mem_grow(NULL, len + 1);
    if (len) memcpy(copy, text, len);
    copy[len] = 0;
    return copy;
}

/* Makes room for extra more bytes and the closing NUL. */
static void buf_reserve(struct buf *b, size_t extra) {
    size_t need = b->len + extra + 1;
    if (need <= b->cap) return;
    while (b->cap < need) b->cap = b->cap ? b->cap * 2 : 64;
    b->data = mem_grow(b->data, b->cap);
}

/* Appends len bytes; data may be NULL when len is 0. */
void buf_put(struct buf *b, const void *data, size_t len) {
    buf_reserve(b, len);
    if (len) memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = 0;
}

/* Appends a string; NULL appends nothing. */
void buf_puts(struct buf *b, const char *text) {
    if (text) buf_put(b, text, strlen(text));
}

/* Appends one byte. */
void buf_putc(struct buf *b, char c) { buf_put(b, &c, 1); }

/* Appends count copies of one byte. */
void buf_fill(struct buf *b, char c, size_t count) {
    buf_reserve(b, count);
    memset(b->data + b->len, c, count);
    b->len += count;
    b->data[b->len] = 0;
}

/* Appends formatted text. */
void buf_printf(struct buf *b, const char *format, ...) {
    va_list args;
    va_start(args, format);
    buf_vprintf(b, format, args);
    va_end(args);
}

/* Appends formatted text from an argument list, which stays usable as after vsnprintf. */
void buf_vprintf(struct buf *b, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    if (len > 0) {
        buf_reserve(b, (size_t)len);
        vsnprintf(b->data + b->len, (size_t)len + 1, format, again);
        b->len += (size_t)len;
    }
    va_end(again);
}

/* Empties the buffer and keeps its memory. */
void buf_clear(struct buf *b) {
    b->len = 0;
    if (b->data) b->data[0] = 0;
}

/* Gives the memory back; the buffer is empty and usable again. */
void buf_free(struct buf *b) {
    free(b->data);
    *b = (struct buf){0};
}

/* Returns the content as a string owned by the buffer; "" while nothing was put. */
const char *buf_text(const struct buf *b) { return b->data ? b->data : ""; }

/* Appends one id. */
void ids_put(struct ids *list, int32_t id) { ids_append(list, &id, 1); }

/* Appends len ids; data may be NULL when len is 0. */
void ids_append(struct ids *list, const int32_t *data, size_t len) {
    if (list->len + len > list->cap) {
        while (list->cap < list->len + len) list->cap = list->cap ? list->cap * 2 : 64;
        list->data = mem_grow(list->data, list->cap * sizeof *list->data);
    }
    if (len) memcpy(list->data + list->len, data, len * sizeof *data);
    list->len += len;
}

/* Drops everything from position len on; longer than the list changes nothing. */
void ids_truncate(struct ids *list, size_t len) {
    if (len < list->len) list->len = len;
}

/* Drops the ids in [start, end) and closes the gap; the range must lie inside the list. */
void ids_remove(struct ids *list, size_t start, size_t end) {
    if (start >= end) return;
    memmove(list->data + start, list->data + end, (list->len - end) * sizeof *list->data);
    list->len -= end - start;
}

/* Gives the memory back; the list is empty and usable again. */
void ids_free(struct ids *list) {
    free(list->data);
    *list = (struct ids){0};
}
