/* faults.h: what can be made to go wrong, as words.
 *
 * A line of words ("crash SIGSEGV after 5") is applied to a struct faults. The same words are read from `fault`
 * lines of a script, from `fault` lines of one of its rules, and from $RKLLM_EMULATOR_FAULTS (separated by ';').
 * A later line overrides an earlier one. To add a fault: a member here, a row in the table of faults.c, and the
 * place that asks for it. */

#ifndef EMULATOR_FAULTS_H
#define EMULATOR_FAULTS_H

#include <stdbool.h>

#include "buffers.h"

#define FAULT_NEVER (-1L)

/* Who is asking: some faults make no sense for a single run. */
enum fault_scope { FAULTS_OF_MODEL, FAULTS_OF_RULE };

/* What a callback hears when a run was aborted. */
enum after_abort { ABORT_FINISHES, ABORT_ERRORS, ABORT_IS_SILENT };

/* How a run that does not fit the context is refused. */
enum refusal { REFUSE_BY_RETURN, REFUSE_BY_CALLBACK, REFUSE_BY_CRASH };

/* What a callback hears of a special token while skip_special_token is on. */
enum skipped { SKIPPED_SILENTLY, SKIPPED_AS_NULL, SKIPPED_AS_EMPTY };

struct faults {
    /* at rkllm_init */
    bool init_fails;
    bool init_null_handle;
    double init_seconds;
    int init_signal; /* 0: no crash */
    /* in a run; positions count delivered tokens */
    int crash_signal;
    long crash_after;
    long hang_after;
    bool hang_ignores_abort;
    long error_after;
    long null_text_at;
    bool ignore_eos;
    enum after_abort after_abort;
    /* how the library behaves where the vendor's documents are silent */
    bool callback_on_calling_thread;
    bool is_running_inverted;
    bool abort_idle_fails;
    bool abort_in_prefill;
    bool finish_text_null;
    bool log_noise;
    enum refusal over_long;
    enum skipped skipped;
};

void faults_init(struct faults *f);
bool faults_apply(struct faults *f, enum fault_scope scope, const char *line, struct buf *error);
bool faults_apply_list(struct faults *f, const char *lines, struct buf *error);
void fault_die(int signal_number);

#endif
