/* faults.h: what can be made to go wrong, as words.
 *
 * A line of words ("crash SIGSEGV after 5") is applied to a struct faults. The same words are read from `fault`
 * lines of a script, from `fault` lines of one of its rules, and from $RKLLM_EMULATOR_FAULTS (separated by ';').
 * A later line overrides an earlier one. To add a fault: a member here, a row in the table of faults.c, and the
 * place that asks for it. The first value of every enum is what holds when nothing is said. */

#ifndef EMULATOR_FAULTS_H
#define EMULATOR_FAULTS_H

#include <stdbool.h>

#include "buffers.h"

#define FAULT_NEVER (-1L)

/* Who is asking: some faults make no sense for a single run. */
enum fault_scope { FAULTS_OF_MODEL, FAULTS_OF_RULE };

/* Which rkllm_init of a process crashes. */
enum init_crash { CRASH_AT_INIT, CRASH_AT_SECOND_INIT, CRASH_AFTER_FAILURE, CRASH_AT_SECOND_FAILURE };

/* Which rkllm_init finds no NPU memory. */
enum init_memory { MEMORY_SUFFICES, MEMORY_IS_FULL, MEMORY_HOLDS_ONE };

/* What an asynchronous run does. */
enum run_async { ASYNC_RETURNS, ASYNC_HANGS, ASYNC_IS_SILENT };

/* What a callback hears when a run was aborted. */
enum after_abort { ABORT_FINISHES, ABORT_ERRORS, ABORT_IS_SILENT };

/* Which aborts have no effect. */
enum abort_forgotten { ABORT_REMEMBERED, ABORT_FORGOTTEN_ONCE, ABORT_FORGOTTEN_ALWAYS, ABORT_FORGOTTEN_IN_PREFILL };

/* Who makes the callbacks. */
enum callback_thread { CALLBACKS_OF_LIBRARY, CALLBACKS_OF_CALLER, CALLBACKS_OF_NEW_THREAD };

/* What a run leaves in the cache for the next one. */
enum reuse { REUSE_ALWAYS, REUSE_OF_HISTORY, REUSE_OFF };

/* What of a prompt the cache holds whole is evaluated again. */
enum full_match { FULL_MATCH_LAST, FULL_MATCH_NONE, FULL_MATCH_ALL };

/* What ends the paused state in addition to resuming; each includes the clearing of the cache, but the last. */
enum leave_pause { PAUSE_LEFT_BY_CLEAR, PAUSE_LEFT_BY_RUN, PAUSE_LEFT_BY_ABORT, PAUSE_NEVER_LEFT };

/* How a run that does not fit the context is refused. */
enum refusal { REFUSE_BY_RETURN, REFUSE_BY_CALLBACK, REFUSE_BY_CRASH };

/* What an aborted run does with its prompt-cache file: whether it writes it, and whether loading that file in the same
 * process crashes. */
enum aborted_save { ABORTED_SAVES_NOTHING, ABORTED_SAVES, ABORTED_SAVES_A_TRAP };

/* What a callback hears of a special token while skip_special_token is on. */
enum skipped { SKIPPED_SILENTLY, SKIPPED_AS_NULL, SKIPPED_AS_EMPTY };

/* Members of type int hold a flag or a value of the enum that is named next to them. */
struct faults {
    /* at rkllm_init */
    int init_fails;
    int init_null_handle;
    double init_seconds;
    int init_signal; /* 0: no crash */
    int init_crash;  /* enum init_crash */
    int init_memory; /* enum init_memory */
    char driver[16]; /* "": the board's own */
    /* in a run; positions count delivered tokens */
    int crash_signal;
    long crash_after;
    long hang_after;
    int hang_in_prefill;
    int hang_ignores_abort;
    long stall_after;
    double stall_seconds;
    long error_after;
    long null_text_at;
    long abort_late; /* tokens */
    long wrong_at;   /* tokens of the answer before which the wrong text comes; FAULT_NEVER: nowhere */
    long wrong_times; /* in a row of runs of one rule */
    char wrong_text[32];
    int run_memory;  /* the run finds no NPU memory */
    int matmul_fails;
    int ignore_eos;
    int after_abort; /* enum after_abort */
    int abort_return;    /* the value an aborted run returns: 0, else -1 */
    int abort_forgotten; /* enum abort_forgotten */
    int run_async;       /* enum run_async */
    int hidden_needs_clear;
    long leak_bytes;    /* that every picture of a run leaves behind */
    int stale_pictures; /* a new picture is noise while others are in the cache */
    /* how the library behaves where the vendor's documents are silent */
    int callback_thread; /* enum callback_thread */
    int is_running_inverted;
    int abort_idle_fails;
    int abort_in_prefill;
    int reuse;       /* enum reuse */
    int history_stays; /* kept history stays in later runs without it, until the cache is cleared */
    int system_dropped;
    int full_match;  /* enum full_match */
    int last_token_cached; /* the last sampled token is in the cache after the run */
    int leave_pause; /* enum leave_pause */
    int hidden_last_row;
    int logits_last_row;
    int logits_cache_dropped; /* a run for logits leaves nothing in the cache */
    int one_hidden_callback;
    int rows_unfinished;     /* hidden states and logits come without FINISH */
    int logits_history_dies; /* a run for logits with token ids and kept history ends the process */
    int aborted_save;        /* enum aborted_save */
    int reported_cache_file; /* prompt-cache files begin as the vendor's were reported to */
    int finish_text_null;
    int over_long; /* enum refusal */
    int skipped;   /* enum skipped */
    int log_noise;
};

void faults_init(struct faults *f);
bool faults_apply(struct faults *f, enum fault_scope scope, const char *line, struct buf *error);
bool faults_apply_list(struct faults *f, const char *lines, struct buf *error);
void fault_die(int signal_number);

#endif
