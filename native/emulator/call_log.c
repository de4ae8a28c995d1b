/* call_log.c: see call_log.h. */

#include "call_log.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "console.h"
#include "json.h"

/* Starts a member: a comma where one is needed, and the name. */
static void member(struct call_log *log, const char *key) {
    char last = log->line.len ? log->line.data[log->line.len - 1] : '{';
    if (last != '{' && last != '[') buf_puts(&log->line, ", ");
    json_write_string(&log->line, key, strlen(key));
    buf_puts(&log->line, ": ");
}

/* Starts the line of a call and opens its args; handle is the number of the model, 0 before there is one. */
void call_log_begin(struct call_log *log, const char *call, int handle) {
    const char *path = getenv("RKLLM_EMULATOR_LOG");
    *log = (struct call_log){.path = path && *path ? mem_string(path) : NULL};
    if (!log->path) return;
    buf_putc(&log->line, '{');
    call_log_text(log, "call", call);
    call_log_number(log, "handle", handle);
    call_log_number(log, "pid", (double)getpid());
    call_log_number(log, "thread", (double)syscall(SYS_gettid));
    call_log_number(log, "ms", clock_ms());
    call_log_open(log, "args");
}

/* Makes copy its own line with the content of log so far. */
void call_log_copy(struct call_log *copy, const struct call_log *log) {
    *copy = (struct call_log){.path = mem_string(log->path)};
    if (log->path) buf_put(&copy->line, log->line.data, log->line.len);
}

/* Appends the finished line to the file in one write; a file that cannot be written is not a reason to stop. */
static void write_line(struct call_log *log) {
    buf_puts(&log->line, "}\n");
    int file = open(log->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) return;
    ssize_t written = write(file, log->line.data, log->line.len);
    (void)written;
    close(file);
}

/* Appends the time to the file that $RKLLM_EMULATOR_CALLBACKS names: CLOCK_MONOTONIC, nanoseconds, 8 bytes. */
void call_log_callback(void) {
    const char *path = getenv("RKLLM_EMULATOR_CALLBACKS");
    if (!path || !*path) return;
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    ssize_t written = write(file, &ns, sizeof ns);
    (void)written;
    close(file);
}

/* Adds the return value, writes the line and frees it. The args have been closed by the caller. */
void call_log_end(struct call_log *log, int returned) {
    if (log->path) {
        call_log_number(log, "return", returned);
        write_line(log);
    }
    call_log_drop(log);
}

/* As call_log_end, for a call that will not return. */
void call_log_end_unreturned(struct call_log *log) {
    if (log->path) {
        call_log_null(log, "return");
        write_line(log);
    }
    call_log_drop(log);
}

/* Frees the line without writing it. */
void call_log_drop(struct call_log *log) {
    free(log->path);
    buf_free(&log->line);
    log->path = NULL;
}

/* Opens an object. */
void call_log_open(struct call_log *log, const char *key) {
    if (!log->path) return;
    member(log, key);
    buf_putc(&log->line, '{');
}

/* Closes the object opened last. */
void call_log_close(struct call_log *log) {
    if (log->path) buf_putc(&log->line, '}');
}

/* Adds a number; what JSON cannot write becomes text. */
void call_log_number(struct call_log *log, const char *key, double value) {
    if (!log->path) return;
    member(log, key);
    if (isfinite(value))
        buf_printf(&log->line, "%.9g", value);
    else
        buf_printf(&log->line, "\"%g\"", value);
}

/* Adds true or false. */
void call_log_bool(struct call_log *log, const char *key, bool value) {
    if (!log->path) return;
    member(log, key);
    buf_puts(&log->line, value ? "true" : "false");
}

/* Adds a string, null for NULL. */
void call_log_text(struct call_log *log, const char *key, const char *value) {
    if (!log->path) return;
    member(log, key);
    json_write_string(&log->line, value, value ? strlen(value) : 0);
}

/* Adds null. */
void call_log_null(struct call_log *log, const char *key) { call_log_text(log, key, NULL); }

/* Adds whether a pointer was given: addresses say nothing to a test. */
void call_log_given(struct call_log *log, const char *key, const void *pointer) {
    call_log_bool(log, key, pointer != NULL);
}

/* Adds a list of ids; null for NULL. */
void call_log_ids(struct call_log *log, const char *key, const int32_t *ids, size_t count) {
    if (!log->path) return;
    member(log, key);
    if (!ids) {
        buf_puts(&log->line, "null");
        return;
    }
    buf_putc(&log->line, '[');
    for (size_t i = 0; i < count; i++) buf_printf(&log->line, "%s%d", i ? "," : "", ids[i]);
    buf_putc(&log->line, ']');
}
