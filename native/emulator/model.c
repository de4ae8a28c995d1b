/* model.c: the life of a model, its library thread, and who may use it when. See model.h for the rules. */

#include "model.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "console.h"
#include "script_words.h"

/* How many models this process has made; numbers them in the call log. */
static atomic_int models_made;

/* Returns a model without a script and without a thread. The caller frees it with model_free. */
struct model *model_create(void) {
    struct model *m = mem_alloc(sizeof *m);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&m->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&m->lock, NULL);
    m->number = atomic_fetch_add(&models_made, 1) + 1;
    m->history.pending = -1;
    faults_init(&m->faults);
    return m;
}

/* Frees a model that has no thread any more; NULL is allowed. */
void model_free(struct model *m) {
    if (!m) return;
    run_clear(&m->run);
    chat_free(&m->chat);
    ids_free(&m->kv.ids);
    words_free(m->loras, m->lora_count);
    script_free(m->script);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* Sets the activity and wakes everybody who waits for it; the lock is held. */
static void set_activity(struct model *m, enum activity activity) {
    m->activity = activity;
    pthread_cond_broadcast(&m->changed);
}

/* The library's thread: executes queued runs until the model is destroyed. */
static void *worker_main(void *argument) {
    struct model *m = argument;
    pthread_mutex_lock(&m->lock);
    for (;;) {
        /* A run accepted before rkllm_destroy still has to be ended by this thread. */
        if (m->destroying && m->activity == IDLE) break;
        if (m->activity != QUEUED) {
            pthread_cond_wait(&m->changed, &m->lock);
            continue;
        }
        m->activity = RUNNING;
        m->runner = pthread_self();
        pthread_mutex_unlock(&m->lock);
        int result = run_execute(m);
        pthread_mutex_lock(&m->lock);
        m->result = result;
        set_activity(m, m->run.async ? IDLE : DONE);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* Starts the library's thread; false when the system has none to give. */
bool model_start_worker(struct model *m) {
    return pthread_create(&m->worker, NULL, worker_main, m) == 0;
}

/* Aborts what runs, waits until it and everybody inside has left, and joins the library's thread. */
void model_stop_worker(struct model *m) {
    pthread_mutex_lock(&m->lock);
    m->destroying = true;
    m->abort_requested = true;
    pthread_cond_broadcast(&m->changed);
    while (m->activity != IDLE) pthread_cond_wait(&m->changed, &m->lock);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->worker, NULL);
}

/* Takes the lock for a call that changes the model between runs; false, with a line, while one is active. */
bool model_begin_change(struct model *m, const char *what) {
    pthread_mutex_lock(&m->lock);
    if (m->activity == IDLE && !m->destroying) return true;
    pthread_mutex_unlock(&m->lock);
    console_line('E', "%s is not possible while the model is running!", what);
    return false;
}

/* Ends what model_begin_change began. */
void model_end_change(struct model *m) { pthread_mutex_unlock(&m->lock); }

/* Claims the model for a run; false, with a line, when another run has it. */
bool model_begin_run(struct model *m) {
    pthread_mutex_lock(&m->lock);
    bool free_to_run = m->activity == IDLE && !m->destroying;
    if (free_to_run) {
        m->activity = PREPARING;
        m->abort_requested = false;
    }
    pthread_mutex_unlock(&m->lock);
    if (!free_to_run) console_line('E', "another run is active on this handle!");
    return free_to_run;
}

/* Gives the model back after a run that this thread executed, waited for or refused. Returns result. */
int model_finish_run(struct model *m, int result) {
    pthread_mutex_lock(&m->lock);
    set_activity(m, IDLE);
    pthread_mutex_unlock(&m->lock);
    return result;
}

/* Has the prepared run executed: on this thread when the fault says so, else on the library's. Returns what
 * rkllm_run returns; the model is then still claimed by this thread, unless the run is asynchronous. */
int model_dispatch(struct model *m) {
    bool here = m->run.faults.callback_on_calling_thread && !m->run.async;
    bool async = m->run.async;
    pthread_mutex_lock(&m->lock);
    m->runner = pthread_self();
    set_activity(m, here ? RUNNING : QUEUED);
    while (!here && !async && m->activity != DONE) pthread_cond_wait(&m->changed, &m->lock);
    int result = async ? 0 : m->result;
    pthread_mutex_unlock(&m->lock);
    return here ? run_execute(m) : result;
}

/* Returns true when an abort was asked for since the run began. */
bool model_abort_requested(struct model *m) {
    pthread_mutex_lock(&m->lock);
    bool requested = m->abort_requested;
    pthread_mutex_unlock(&m->lock);
    return requested;
}

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
        stopped = m->destroying || (stops_on_abort && m->abort_requested);
        if (!stopped) waited = pthread_cond_timedwait(&m->changed, &m->lock, &end);
    }
    pthread_mutex_unlock(&m->lock);
    return !stopped;
}

/* Does nothing until an abort; for ever when that is ignored. */
void model_hang(struct model *m, bool ignores_abort) {
    pthread_mutex_lock(&m->lock);
    while (ignores_abort || !m->abort_requested) pthread_cond_wait(&m->changed, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

/* Empties the KV cache from position keep on, with the history and a paused run; the lock is held. */
void model_forget(struct model *m, size_t keep) {
    ids_truncate(&m->kv.ids, keep);
    m->history = (struct history){.pending = -1};
    m->paused = false;
}
