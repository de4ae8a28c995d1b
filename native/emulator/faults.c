/* faults.c: see faults.h. */

#include "faults.h"

#include <pthread.h>
#include <signal.h>
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
                         .error_after = FAULT_NEVER,
                         .null_text_at = FAULT_NEVER};
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

/* Returns the position of the word after the fault's name in a NULL-terminated list, or -1. */
static int read_choice(const struct words *w, const char *const *choices) {
    for (int i = 0; choices[i]; i++)
        if (w->count == 2 && strcmp(word(w, 1), choices[i]) == 0) return i;
    return -1;
}

static bool apply_crash(struct faults *f, const struct words *w) {
    int number = signal_of(word(w, 1));
    if (number && w->count == 4 && strcmp(word(w, 2), "at") == 0 && strcmp(word(w, 3), "init") == 0) {
        f->init_signal = number;
        return true;
    }
    f->crash_signal = number;
    return number && w->count == 4 && read_position(w, 2, "after", &f->crash_after);
}

static bool apply_hang(struct faults *f, const struct words *w) {
    f->hang_ignores_abort = strcmp(word(w, 3), "ignoring-abort") == 0;
    return read_position(w, 1, "after", &f->hang_after) && w->count == (f->hang_ignores_abort ? 4u : 3u);
}

static bool apply_error(struct faults *f, const struct words *w) {
    return w->count == 3 && read_position(w, 1, "after", &f->error_after);
}

static bool apply_null_text(struct faults *f, const struct words *w) {
    return w->count == 3 && read_position(w, 1, "at", &f->null_text_at);
}

static bool apply_init_slow(struct faults *f, const struct words *w) {
    return w->count == 2 && words_number(word(w, 1), 0, 86400, &f->init_seconds);
}

static bool apply_after_abort(struct faults *f, const struct words *w) {
    static const char *const choices[] = {"finish", "error", "nothing", NULL};
    int choice = read_choice(w, choices);
    if (choice >= 0) f->after_abort = (enum after_abort)choice;
    return choice >= 0;
}

static bool apply_callback_thread(struct faults *f, const struct words *w) {
    static const char *const choices[] = {"library", "calling", NULL};
    int choice = read_choice(w, choices);
    f->callback_on_calling_thread = choice == 1;
    return choice >= 0;
}

static bool apply_is_running(struct faults *f, const struct words *w) {
    static const char *const choices[] = {"normal", "inverted", NULL};
    int choice = read_choice(w, choices);
    f->is_running_inverted = choice == 1;
    return choice >= 0;
}

static bool apply_over_long(struct faults *f, const struct words *w) {
    static const char *const choices[] = {"return", "callback", "crash", NULL};
    int choice = read_choice(w, choices);
    if (choice >= 0) f->over_long = (enum refusal)choice;
    return choice >= 0;
}

static bool apply_skipped(struct faults *f, const struct words *w) {
    static const char *const choices[] = {"silent", "null", "empty", NULL};
    int choice = read_choice(w, choices);
    if (choice >= 0) f->skipped = (enum skipped)choice;
    return choice >= 0;
}

static bool apply_finish_text(struct faults *f, const struct words *w) {
    static const char *const choices[] = {"empty", "null", NULL};
    int choice = read_choice(w, choices);
    f->finish_text_null = choice == 1;
    return choice >= 0;
}

static bool apply_init_fails(struct faults *f, const struct words *w) { return f->init_fails = w->count == 1; }
static bool apply_null_handle(struct faults *f, const struct words *w) { return f->init_null_handle = w->count == 1; }
static bool apply_ignore_eos(struct faults *f, const struct words *w) { return f->ignore_eos = w->count == 1; }
static bool apply_abort_idle(struct faults *f, const struct words *w) { return f->abort_idle_fails = w->count == 1; }
static bool apply_in_prefill(struct faults *f, const struct words *w) { return f->abort_in_prefill = w->count == 1; }
static bool apply_log_noise(struct faults *f, const struct words *w) { return f->log_noise = w->count == 1; }

static bool apply_no_finish(struct faults *f, const struct words *w) {
    f->after_abort = ABORT_IS_SILENT;
    return w->count == 1;
}

static const struct {
    const char *name;
    const char *usage;
    bool (*apply)(struct faults *f, const struct words *w);
    enum fault_scope scope; /* FAULTS_OF_RULE: of a rule as well as of the model */
} table[] = {
    {"crash", "crash SIGNAL after N | crash SIGNAL at init", apply_crash, FAULTS_OF_RULE},
    {"hang", "hang after N [ignoring-abort]", apply_hang, FAULTS_OF_RULE},
    {"error", "error after N", apply_error, FAULTS_OF_RULE},
    {"null-text", "null-text at N", apply_null_text, FAULTS_OF_RULE},
    {"ignore-eos", "ignore-eos", apply_ignore_eos, FAULTS_OF_RULE},
    {"no-finish-on-abort", "no-finish-on-abort", apply_no_finish, FAULTS_OF_RULE},
    {"after-abort", "after-abort finish|error|nothing", apply_after_abort, FAULTS_OF_RULE},
    {"init-fails", "init-fails", apply_init_fails, FAULTS_OF_MODEL},
    {"init-null-handle", "init-null-handle", apply_null_handle, FAULTS_OF_MODEL},
    {"init-slow", "init-slow SECONDS", apply_init_slow, FAULTS_OF_MODEL},
    {"callback-thread", "callback-thread library|calling", apply_callback_thread, FAULTS_OF_RULE},
    {"is-running", "is-running normal|inverted", apply_is_running, FAULTS_OF_MODEL},
    {"abort-idle-fails", "abort-idle-fails", apply_abort_idle, FAULTS_OF_MODEL},
    {"abort-in-prefill", "abort-in-prefill", apply_in_prefill, FAULTS_OF_RULE},
    {"over-long", "over-long return|callback|crash", apply_over_long, FAULTS_OF_MODEL},
    {"skipped-token", "skipped-token silent|null|empty", apply_skipped, FAULTS_OF_RULE},
    {"finish-text", "finish-text empty|null", apply_finish_text, FAULTS_OF_RULE},
    {"log-noise", "log-noise", apply_log_noise, FAULTS_OF_MODEL},
};

/* Writes why a line is no fault: its usage when the first word is known, else all the words there are. */
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
    while (fits && words_next(&at, &next)) {
        fits = w.count < MAX_WORDS;
        if (fits) w.at[w.count++] = mem_string(buf_text(&next));
    }
    for (size_t i = 0; fits && i < sizeof table / sizeof *table && !usage; i++) {
        if (strcmp(table[i].name, word(&w, 0)) != 0) continue;
        bool in_rule = scope == FAULTS_OF_RULE, allowed = !in_rule || table[i].scope == FAULTS_OF_RULE;
        usage = allowed ? table[i].usage : "before the first rule, not in one";
        applied = allowed && table[i].apply(f, &w) && !(in_rule && f->init_signal);
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
