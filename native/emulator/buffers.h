/* buffers.h: growing buffers of bytes and of token ids.
 *
 * A buffer that is all zeroes is empty and ready to use; the *_free functions bring it back to that state.
 * Running out of memory ends the process with a line on stderr: the emulator has nothing useful to do without. */

#ifndef EMULATOR_BUFFERS_H
#define EMULATOR_BUFFERS_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PRINTF_LIKE(at, first) __attribute__((format(printf, at, first)))
#else
#define PRINTF_LIKE(at, first)
#endif

struct buf {
    char *data; /* always followed by a NUL once anything was put; NULL before */
    size_t len;
    size_t cap;
};

struct ids {
    int32_t *data;
    size_t len;
    size_t cap;
};

void *mem_alloc(size_t bytes);
void *mem_grow(void *old, size_t bytes);
char *mem_string(const char *text);
char *mem_string_n(const char *text, size_t len);

void buf_put(struct buf *b, const void *data, size_t len);
void buf_puts(struct buf *b, const char *text);
void buf_putc(struct buf *b, char c);
void buf_fill(struct buf *b, char c, size_t count);
void buf_printf(struct buf *b, const char *format, ...) PRINTF_LIKE(2, 3);
void buf_vprintf(struct buf *b, const char *format, va_list args);
void buf_clear(struct buf *b);
void buf_free(struct buf *b);
const char *buf_text(const struct buf *b);

void ids_put(struct ids *list, int32_t id);
void ids_append(struct ids *list, const int32_t *data, size_t len);
void ids_truncate(struct ids *list, size_t len);
void ids_remove(struct ids *list, size_t start, size_t end);
void ids_free(struct ids *list);

#endif
