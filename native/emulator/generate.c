/* generate.c: prefill and decode. Time passes here, aborts are honoured here, faults happen here. */

#include <signal.h>

#include "console.h"
#include "model.h"

/* Evaluates the part of the prompt that the cache does not hold. Not interruptible unless a fault says so, as on
 * the board, where an abort took effect when the prefill was done (rknn-llm #400). False when it was cut short. */
static bool prefill(struct model *m) {
    struct run *run = &m->run;
    double start = clock_ms();
    size_t fresh = run->prompt.len - run->reused;
    double seconds = m->speed.prefill > 0 ? (double)fresh / m->speed.prefill : 0;
    bool whole = model_wait(m, seconds, run->faults.abort_in_prefill);
    pthread_mutex_lock(&m->lock);
    ids_truncate(&m->kv.ids, run->reused);
    if (whole) ids_append(&m->kv.ids, run->prompt.data + run->reused, fresh);
    run->prefilled = whole ? fresh : 0;
    pthread_mutex_unlock(&m->lock);
    run->prefill_ms = clock_ms() - start;
    return whole;
}

/* Puts the token sampled before into the cache; a full cache loses its older entries first. */
static void evaluate_previous(struct model *m) {
    struct run *run = &m->run;
    if (!run->sampled.len) return;
    pthread_mutex_lock(&m->lock);
    size_t before = m->kv.ids.len, dropped = 0;
    size_t keep = m->settings.n_keep >= 0 ? (size_t)m->settings.n_keep : m->system_tokens;
    if (before >= m->kv.capacity) dropped = kv_shift(&m->kv, keep);
    ids_put(&m->kv.ids, run->sampled.data[run->sampled.len - 1]);
    pthread_mutex_unlock(&m->lock);
    if (dropped)
        console_line('W', "context to be full[%zu + 1], delete the kv cache in [%zu, %zu), total: %zu", before, keep,
                     keep + dropped, before - dropped);
}

static bool is_eos(const struct script *script, int32_t id) {
    for (size_t i = 0; i < script->eos.len; i++)
        if (script->eos.data[i] == id) return true;
    return false;
}

/* Returns the next token of the answer, then EOS; after that the answer again, which only a run that ignores EOS
 * comes to. */
static int32_t sample(struct model *m) {
    struct run *run = &m->run;
    int32_t id = run->next < run->answer.len ? run->answer.data[run->next] : m->script->eos.data[0];
    run->next = run->next < run->answer.len ? run->next + 1 : 0;
    ids_put(&run->sampled, id);
    return id;
}

/* Lets happen what was asked to go wrong before the next token; false when the run fails by it. */
static bool survive_faults(struct model *m) {
    struct run *run = &m->run;
    const struct faults *faults = &run->faults;
    if (faults->crash_after != FAULT_NEVER && run->delivered >= faults->crash_after) {
        report_to_log(m, run->log);
        call_log_end_unreturned(run->log);
        fault_die(faults->crash_signal);
    }
    if (faults->hang_after != FAULT_NEVER && run->delivered >= faults->hang_after) {
        struct call_log line;
        call_log_copy(&line, run->log);
        report_to_log(m, &line);
        call_log_end_unreturned(&line);
        model_hang(m, faults->hang_ignores_abort);
    }
    return faults->error_after == FAULT_NEVER || run->delivered < faults->error_after;
}

/* True when the context has no room left and none may be made: there is no limit on new tokens to end the run. */
static bool is_full(const struct model *m) {
    return m->run.max_new_tokens == INT32_MAX && m->kv.ids.len >= m->kv.capacity && m->run.sampled.len;
}

/* Decodes until something ends the run, and says what. */
static enum run_end decode(struct model *m) {
    struct run *run = &m->run;
    double step_seconds = m->speed.decode > 0 ? 1 / m->speed.decode : 0;
    bool ignores_eos = run->faults.ignore_eos || m->settings.ignore_eos;
    while (run->sampled.len < (size_t)run->max_new_tokens && !is_full(m)) {
        if (model_abort_requested(m)) return RUN_ABORTED;
        if (!survive_faults(m)) return RUN_FAILED;
        if (!model_wait(m, step_seconds, true) || model_abort_requested(m)) return RUN_ABORTED;
        evaluate_previous(m);
        int32_t id = sample(m);
        bool eos = is_eos(m->script, id);
        bool pause = deliver_token(m, id, eos || vocabulary_is_special(m->script->vocabulary, id));
        if (eos && !ignores_eos) return RUN_FINISHED;
        if (pause) return RUN_PAUSED;
    }
    return RUN_FINISHED;
}

/* Keeps what the next run needs of this one. */
static void settle(struct model *m) {
    struct run *run = &m->run;
    pthread_mutex_lock(&m->lock);
    m->paused = run->end == RUN_PAUSED;
    m->history.kept = run->keep_history;
    m->history.pending = run->keep_history && run->sampled.len ? run->sampled.data[run->sampled.len - 1] : -1;
    pthread_mutex_unlock(&m->lock);
    ids_truncate(&m->chat.transcript, 0);
    ids_append(&m->chat.transcript, run->prompt.data, run->prompt.len);
    ids_append(&m->chat.transcript, run->sampled.data, run->sampled.len);
    if (run->save_path && run->end == RUN_FINISHED) prompt_cache_save(m, run->save_path, &run->prompt);
}

/* Makes the last callback of the run, if it has one. */
static void conclude(struct model *m) {
    enum after_abort after_abort = m->run.faults.after_abort;
    enum run_end end = m->run.end;
    if (end == RUN_FINISHED || (end == RUN_ABORTED && after_abort == ABORT_FINISHES))
        deliver_end(m, RKLLM_RUN_FINISH);
    else if (end == RUN_FAILED || (end == RUN_ABORTED && after_abort == ABORT_ERRORS))
        deliver_end(m, RKLLM_RUN_ERROR);
    deliver_release(&m->run);
}

/* Runs m->run to its end or its pause. Returns what rkllm_run returns. The line of an asynchronous run is written
 * here, because its call has returned long before. */
int run_execute(struct model *m) {
    struct run *run = &m->run;
    struct call_log ended;
    if (run->async) {
        call_log_begin(&ended, "run_ended", m->number);
        call_log_close(&ended);
        run->log = &ended;
    }
    if (m->faults.log_noise) console_noise();
    bool ready = run->resumed || prefill(m);
    double start = clock_ms();
    run->end = ready ? decode(m) : RUN_ABORTED;
    run->generate_ms += clock_ms() - start;
    settle(m);
    conclude(m);
    report_end(m);
    report_to_log(m, run->log);
    int result = run->end == RUN_FAILED ? -1 : 0;
    if (run->async) call_log_end(&ended, result);
    run->log = NULL;
    return result;
}
