/* faults.c: see faults.h. */

#include "faults.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "script_words.h"

#define MAX_WORDS 6

struct words {
    char *at[MAX_WORDS];
    size_t count;
};

/* Makes f a runtime without faults, behaving as the vendor documents or as this project assumes. */
void faults_init(struct faults *f) {
    *f = (struct faults){.crash_after = FAULT_NEVER,
                         .hang_after = FAULT_NEVER,
                         .stall_after = FAULT_NEVER,
                         .error_after = FAULT_NEVER,
                         .null_text_at = FAULT_NEVER,
                         .wrong_at = FAULT_NEVER};
}

static const struct {
    const char *name;
    int number;
} signals[] = {
    {"SIGSEGV", SIGSEGV}, {"SIGILL", SIGILL}, {"SIGBUS", SIGBUS},   {"SIGABRT", SIGABRT},
    {"SIGFPE", SIGFPE},   {"SIGKILL", SIGKILL}, {"SIGTERM", SIGTERM},
};

/* Returns the number of a signal name, or 0. */
static int signal_of(const char *name) {
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (strcmp(signals[i].name, name) == 0) return signals[i].number;
    return 0;
}

/* Returns the word at a position, "" beyond the end. */
static const char *word(const struct words *w, size_t position) {
    return position < w->count ? w->at[position] : "";
}

/* Reads "after N" or "at N" from a position into *count. */
static bool read_position(const struct words *w, size_t position, const char *keyword, long *count) {
    double number;
    if (strcmp(word(w, position), keyword) != 0) return false;
    if (!words_number(word(w, position + 1), 0, 1e9, &number)) return false;
    *count = (long)number;
    return true;
}

/* Returns the position of a word in a list written "one|two|three", or -1. */
static int find_choice(const char *choices, const char *wanted) {
    size_t len = strlen(wanted);
    for (int i = 0; *choices; i++) {
        size_t width = strcspn(choices, "|");
        if (width == len && len && strncmp(choices, wanted, len) == 0) return i;
        choices += width + (choices[width] == '|');
    }
    return -1;
}

/* crash SIGNAL after N | crash SIGNAL at MOMENT */
static bool apply_crash(struct faults *f, const struct words *w) {
    int number = signal_of(word(w, 1));
    if (!number || w->count != 4) return false;
    if (strcmp(word(w, 2), "at") == 0) {
        int moment = find_choice("init|second-init|init-after-failure|second-failure", word(w, 3));
        if (moment >= 0) f->init_crash = moment;
        f->init_signal = moment >= 0 ? number : 0;
        return moment >= 0;
    }
    f->crash_signal = number;
    return read_position(w, 2, "after", &f->crash_after);
}

/* hang after N | hang in-prefill, both with ignoring-abort or without */
static bool apply_hang(struct faults *f, const struct words *w) {
    size_t last = w->count - 1;
    f->hang_ignores_abort = strcmp(word(w, last), "ignoring-abort") == 0;
    size_t expected = w->count - (f->hang_ignores_abort ? 1 : 0);
    bool in_prefill = expected == 2 && strcmp(word(w, 1), "in-prefill") == 0;
    if (in_prefill) f->hang_in_prefill = true;
    return in_prefill || (expected == 3 && read_position(w, 1, "after", &f->hang_after));
}

static bool apply_stall(struct faults *f, const struct words *w) {
    return w->count == 4 && read_position(w, 1, "after", &f->stall_after) &&
           words_number(word(w, 3), 0, 86400, &f->stall_seconds);
}

static bool apply_error(struct faults *f, const struct words *w) {
    return w->count == 3 && read_position(w, 1, "after", &f->error_after);
}

static bool apply_null_text(struct faults *f, const struct words *w) {
    return w->count == 3 && read_position(w, 1, "at", &f->null_text_at);
}

static bool apply_abort_late(struct faults *f, const struct words *w) {
    double number = 0;
    bool good = w->count == 2 && words_number(word(w, 1), 0, 1e9, &number);
    f->abort_late = (long)number;
    return good;
}

/* wrong-token TEXT after N [times M] */
static bool apply_wrong_token(struct faults *f, const struct words *w) {
    double times = 1;
    bool good = w->count == 4 || (w->count == 6 && strcmp(word(w, 4), "times") == 0 &&
                                  words_number(word(w, 5), 1, 1e9, &times));
    good = good && strlen(word(w, 1)) < sizeof f->wrong_text && read_position(w, 2, "after", &f->wrong_at);
    if (good) strcpy(f->wrong_text, word(w, 1));
    f->wrong_times = (long)times;
    return good;
}

static bool apply_init_slow(struct faults *f, const struct words *w) {
    return w->count == 2 && words_number(word(w, 1), 0, 86400, &f->init_seconds);
}

/* out-of-memory at init | at second-model | at run */
static bool apply_memory(struct faults *f, const struct words *w) {
    bool shaped = w->count == 3 && strcmp(word(w, 1), "at") == 0;
    int place = shaped ? find_choice("run|init|second-model", word(w, 2)) : -1;
    if (place > 0) f->init_memory = place;
    if (place == 0) f->run_memory = true;
    return place >= 0;
}

/* leak-pictures MB */
static bool apply_leak(struct faults *f, const struct words *w) {
    double megabytes = 0;
    bool good = w->count == 2 && words_number(word(w, 1), 0, 1024, &megabytes);
    f->leak_bytes = (long)(megabytes * (1 << 20));
    return good;
}

static bool apply_driver(struct faults *f, const struct words *w) {
    int parts[3], end = 0;
    const char *version = word(w, 1);
    bool good = w->count == 2 && strlen(version) < sizeof f->driver &&
                sscanf(version, "%d.%d.%d%n", &parts[0], &parts[1], &parts[2], &end) == 3 && !version[end];
    if (good) strcpy(f->driver, version);
    return good;
}

static bool apply_no_finish(struct faults *f, const struct words *w) {
    f->after_abort = ABORT_IS_SILENT;
    return w->count == 1;
}

#define MEMBER(name) NULL, offsetof(struct faults, name)
#define OWN(function) function, 0

/* A row without its own function is a flag when its usage is one word; else the choices after the first word
 * are the values 0, 1, 2, ... of its member. */
static const struct fault {
    const char *name;
    const char *usage;
    bool (*apply)(struct faults *f, const struct words *w);
    size_t member;
    enum fault_scope scope; /* FAULTS_OF_RULE: of a rule as well as of the model */
} table[] = {
    {"crash", "crash SIGNAL after N | crash SIGNAL at init|second-init|init-after-failure|second-failure",
     OWN(apply_crash), FAULTS_OF_RULE},
    {"init-fails", "init-fails", MEMBER(init_fails), FAULTS_OF_MODEL},
    {"init-null-handle", "init-null-handle", MEMBER(init_null_handle), FAULTS_OF_MODEL},
    {"init-slow", "init-slow SECONDS", OWN(apply_init_slow), FAULTS_OF_MODEL},
    {"out-of-memory", "out-of-memory at init|second-model|run", OWN(apply_memory), FAULTS_OF_RULE},
    {"driver-version", "driver-version X.Y.Z", OWN(apply_driver), FAULTS_OF_MODEL},
    {"matmul-fails", "matmul-fails", MEMBER(matmul_fails), FAULTS_OF_RULE},
    {"hang", "hang after N [ignoring-abort] | hang in-prefill [ignoring-abort]", OWN(apply_hang), FAULTS_OF_RULE},
    {"stall", "stall after N SECONDS", OWN(apply_stall), FAULTS_OF_RULE},
    {"run-async", "run-async returns|hangs|silent", MEMBER(run_async), FAULTS_OF_MODEL},
    {"error", "error after N", OWN(apply_error), FAULTS_OF_RULE},
    {"null-text", "null-text at N", OWN(apply_null_text), FAULTS_OF_RULE},
    {"ignore-eos", "ignore-eos", MEMBER(ignore_eos), FAULTS_OF_RULE},
    {"after-abort", "after-abort finish|error|nothing", MEMBER(after_abort), FAULTS_OF_RULE},
    {"no-finish-on-abort", "no-finish-on-abort", OWN(apply_no_finish), FAULTS_OF_RULE},
    {"abort-return", "abort-return 0|-1", MEMBER(abort_return), FAULTS_OF_RULE},
    {"abort-in-prefill", "abort-in-prefill", MEMBER(abort_in_prefill), FAULTS_OF_RULE},
    {"wrong-token", "wrong-token TEXT after N [times M]", OWN(apply_wrong_token), FAULTS_OF_RULE},
    {"abort-late", "abort-late N", OWN(apply_abort_late), FAULTS_OF_RULE},
    {"abort-forgotten", "abort-forgotten never|once|always|in-prefill", MEMBER(abort_forgotten), FAULTS_OF_RULE},
    {"abort-idle-fails", "abort-idle-fails", MEMBER(abort_idle_fails), FAULTS_OF_MODEL},
    {"callback-thread", "callback-thread library|calling|new", MEMBER(callback_thread), FAULTS_OF_RULE},
    {"is-running", "is-running normal|inverted", MEMBER(is_running_inverted), FAULTS_OF_MODEL},
    {"reuse", "reuse always|keep-history-only|off", MEMBER(reuse), FAULTS_OF_MODEL},
    {"history-stays", "history-stays", MEMBER(history_stays), FAULTS_OF_MODEL},
    {"system-prompt", "system-prompt cached|dropped", MEMBER(system_dropped), FAULTS_OF_MODEL},
    {"full-match", "full-match last|none|all", MEMBER(full_match), FAULTS_OF_MODEL},
    {"last-token", "last-token uncached|cached", MEMBER(last_token_cached), FAULTS_OF_MODEL},
    {"leave-pause", "leave-pause clear|run|abort|never", MEMBER(leave_pause), FAULTS_OF_MODEL},
    {"hidden-rows", "hidden-rows all|last", MEMBER(hidden_last_row), FAULTS_OF_RULE},
    {"logits-rows", "logits-rows all|last", MEMBER(logits_last_row), FAULTS_OF_RULE},
    {"logits-cache", "logits-cache kept|dropped", MEMBER(logits_cache_dropped), FAULTS_OF_MODEL},
    {"hidden-callbacks", "hidden-callbacks two|one", MEMBER(one_hidden_callback), FAULTS_OF_RULE},
    {"rows-finish", "rows-finish finish|nothing", MEMBER(rows_unfinished), FAULTS_OF_MODEL},
    {"logits-history-dies", "logits-history-dies", MEMBER(logits_history_dies), FAULTS_OF_MODEL},
    {"aborted-save", "aborted-save nothing|file|trap", MEMBER(aborted_save), FAULTS_OF_MODEL},
    {"cache-file", "cache-file own|reported", MEMBER(reported_cache_file), FAULTS_OF_MODEL},
    {"leak-pictures", "leak-pictures MB", OWN(apply_leak), FAULTS_OF_MODEL},
    {"stale-pictures", "stale-pictures", MEMBER(stale_pictures), FAULTS_OF_MODEL},
    {"hidden-needs-clear", "hidden-needs-clear", MEMBER(hidden_needs_clear), FAULTS_OF_MODEL},
    {"skipped-token", "skipped-token silent|null|empty", MEMBER(skipped), FAULTS_OF_RULE},
    {"finish-text", "finish-text empty|null", MEMBER(finish_text_null), FAULTS_OF_RULE},
    {"over-long", "over-long return|callback|crash", MEMBER(over_long), FAULTS_OF_MODEL},
    {"log-noise", "log-noise", MEMBER(log_noise), FAULTS_OF_MODEL},
};

/* Applies the words of a row; false when they are not of its form. */
static bool apply_row(const struct fault *row, struct faults *f, const struct words *w) {
    int *member = (int *)((char *)f + row->member);
    const char *choices = strchr(row->usage, ' ');
    if (row->apply) return row->apply(f, w);
    if (w->count != (choices ? 2u : 1u)) return false;
    int value = choices ? find_choice(choices + 1, word(w, 1)) : 1;
    if (value >= 0) *member = value;
    return value >= 0;
}

/* True when the faults hold something that only rkllm_init asks for. */
static bool concerns_init(const struct faults *f) { return f->init_signal || f->init_memory; }

/* Writes why a line is not a fault: its usage when the first word is known, else all the words there are. */
static bool explain(const char *line, const char *usage, struct buf *error) {
    buf_printf(error, "'%s' is not a fault; ", line);
    if (usage) {
        buf_printf(error, "it is written %s", usage);
        return false;
    }
    buf_puts(error, "known are:");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) buf_printf(error, " %s", table[i].name);
    return false;
}

/* Applies one line of words to f. Returns false, with what is wrong in error, when the line says nothing known or
 * something that a rule cannot say. */
bool faults_apply(struct faults *f, enum fault_scope scope, const char *line, struct buf *error) {
    char *copy = mem_string(line), *at = copy;
    struct buf next = {0};
    struct words w = {.count = 0};
    const char *usage = NULL;
    bool applied = false, fits = true;
    struct faults scratch; /* a line that is refused changes nothing */
    faults_init(&scratch);
    while (fits && words_next(&at, &next)) {
        fits = w.count < MAX_WORDS;
        if (fits) w.at[w.count++] = mem_string(buf_text(&next));
    }
    for (size_t i = 0; fits && i < sizeof table / sizeof *table && !usage; i++) {
        if (strcmp(table[i].name, word(&w, 0)) != 0) continue;
        bool in_rule = scope == FAULTS_OF_RULE, allowed = !in_rule || table[i].scope == FAULTS_OF_RULE;
        usage = allowed ? table[i].usage : "before the first rule, not in one";
        applied = allowed && apply_row(&table[i], &scratch, &w) && !(in_rule && concerns_init(&scratch));
        if (applied) apply_row(&table[i], f, &w);
    }
    for (size_t i = 0; i < w.count; i++) free(w.at[i]);
    buf_free(&next);
    free(copy);
    return applied || explain(line, usage, error);
}

/* Applies the lines that ';' separates, in order; empty ones are passed over. NULL lines changes nothing. */
bool faults_apply_list(struct faults *f, const char *lines, struct buf *error) {
    char *copy = mem_string(lines), *rest = NULL;
    bool good = true;
    for (char *line = copy ? strtok_r(copy, ";", &rest) : NULL; line && good; line = strtok_r(NULL, ";", &rest)) {
        line = words_trim(line);
        if (*line) good = faults_apply(f, FAULTS_OF_MODEL, line, error);
    }
    free(copy);
    return good;
}

/* Ends the process by a real signal, on this thread, as the runtime's own crash would. Does not return. */
void fault_die(int signal_number) {
    sigset_t just_this;
    sigemptyset(&just_this);
    sigaddset(&just_this, signal_number);
    pthread_sigmask(SIG_UNBLOCK, &just_this, NULL);
    raise(signal_number);
    /* Somebody handled or ignored it; a crash inside a library would not let them go on. */
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    kill(getpid(), SIGKILL);
    for (;;) pause();
}
