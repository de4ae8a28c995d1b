/* waiting.c: how a run spends its time: waiting for the emulated NPU, hanging, and hearing of an abort. */

#include <errno.h>
#include <time.h>

#include "model.h"

/* Lets the emulated work take its time. Returns false when it was cut short: by rkllm_destroy always, by
 * rkllm_abort when stops_on_abort. */
bool model_wait(struct model *m, double seconds, bool stops_on_abort) {
    struct timespec end;
    if (seconds <= 0) return true;
    clock_gettime(CLOCK_MONOTONIC, &end);
    long long nanoseconds = end.tv_nsec + (long long)(seconds * 1e9);
    end.tv_sec += (time_t)(nanoseconds / 1000000000);
    end.tv_nsec = (long)(nanoseconds % 1000000000);
    bool stopped = false;
    int waited = 0;
    pthread_mutex_lock(&m->lock);
    while (!stopped && waited != ETIMEDOUT) {
        stopped = m->destroying || (stops_on_abort && m->abort.requested);
        if (!stopped) waited = pthread_cond_timedwait(&m->changed, &m->lock, &end);
    }
    pthread_mutex_unlock(&m->lock);
    return !stopped;
}

/* Asks the run in progress to end, unless a fault forgets that; the lock is held. */
void model_request_abort(struct model *m) {
    int forgotten = m->abort.forgotten;
    if (forgotten == ABORT_FORGOTTEN_ALWAYS) return;
    if (forgotten == ABORT_FORGOTTEN_IN_PREFILL && m->abort.in_prefill) return;
    if (forgotten == ABORT_FORGOTTEN_ONCE) {
        m->abort.forgotten = ABORT_REMEMBERED;
        return;
    }
    m->abort.requested = true;
    pthread_cond_broadcast(&m->changed);
}

/* True when the run has to end by an abort now: one was asked for and as many tokens as a fault wants have passed. A run
 * that will hang for ever hears none before that either, so that it hangs whenever the abort comes. */
bool model_abort_due(struct model *m) {
    struct run *run = &m->run;
    pthread_mutex_lock(&m->lock);
    bool requested = m->abort.requested, destroying = m->destroying;
    pthread_mutex_unlock(&m->lock);
    if (!requested || (run->faults.hang_ignores_abort && !destroying)) return false;
    if (run->abort_noticed < 0) run->abort_noticed = run->delivered;
    return destroying || run->delivered - run->abort_noticed >= run->faults.abort_late;
}

/* Notes for rkllm_abort that the prompt has been evaluated. */
void model_end_prefill(struct model *m) {
    pthread_mutex_lock(&m->lock);
    m->abort.in_prefill = false;
    pthread_mutex_unlock(&m->lock);
}

/* Does nothing until an abort; for ever when that is ignored. */
void model_hang(struct model *m, bool ignores_abort) {
    pthread_mutex_lock(&m->lock);
    while (ignores_abort || !m->abort.requested) pthread_cond_wait(&m->changed, &m->lock);
    pthread_mutex_unlock(&m->lock);
}
