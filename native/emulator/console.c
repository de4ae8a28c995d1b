/* console.c: see console.h. Every line goes out whole and flushed, so that lines of several threads do not mix
 * and nothing is lost when a fault kills the process. */

#include "console.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Returns the value of RKLLM_LOG_LEVEL, 0 when it is not set. */
int console_level_wanted(void) {
    const char *level = getenv("RKLLM_LOG_LEVEL");
    return level ? atoi(level) : CONSOLE_QUIET;
}

/* Writes bytes to standard output as they are. */
void console_raw(const char *text, size_t len) {
    flockfile(stdout);
    fwrite(text, 1, len, stdout);
    fflush(stdout);
    funlockfile(stdout);
}

/* Prints "S rkllm: text" and a newline. */
void console_line(char severity, const char *format, ...) {
    struct buf line = {0};
    va_list args;
    buf_printf(&line, "%c rkllm: ", severity);
    va_start(args, format);
    buf_vprintf(&line, format, args);
    va_end(args);
    buf_putc(&line, '\n');
    console_raw(line.data, line.len);
    buf_free(&line);
}

/* Prints "I rkllm: label: text" with newlines shown as \n; NULL text counts as empty. */
void console_escaped(const char *label, const char *text) {
    struct buf line = {0};
    for (const char *at = text ? text : ""; *at; at++)
        if (*at == '\n')
            buf_puts(&line, "\\n");
        else
            buf_putc(&line, *at);
    console_line('I', "%s: %s", label, buf_text(&line));
    buf_free(&line);
}

/* The same with the text in quotation marks, which are not escaped inside it. */
void console_quoted(const char *label, const char *text) {
    struct buf quoted = {0};
    buf_printf(&quoted, "\"%s\"", text);
    console_escaped(label, buf_text(&quoted));
    buf_free(&quoted);
}

/* Prints a line of the layer below, "E RKNN: [time of day] text". */
void console_npu(const char *text) {
    struct buf line = {0};
    struct timespec now;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    buf_printf(&line, "E RKNN: [%02d:%02d:%02d.%03d] %s\n", local.tm_hour, local.tm_min, local.tm_sec,
               (int)(now.tv_nsec / 1000000), text);
    console_raw(line.data, line.len);
    buf_free(&line);
}

/* Prints what a board's other layers may put between the lines, also bytes that are not text, on both streams. */
void console_noise(void) {
    static const char noise[] = "I RKNN: [00:00:00.000] emulated noise \xff\xfe\x80 {\"kind\": \"noise\"}\n\n"
                                "\x1b[31m%s\x1b[0m\r\n";
    console_raw(noise, sizeof noise - 1);
    fwrite(noise, 1, sizeof noise - 1, stderr);
}

/* Returns milliseconds on a clock that never goes back. */
double clock_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Returns the most memory this process has had resident, in megabytes. */
double peak_memory_mb(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (double)usage.ru_maxrss / 1024.0 : 0;
}
