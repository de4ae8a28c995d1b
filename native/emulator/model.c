/* model.c: the life of a model, its library thread, and who may use it when. See model.h for the rules. */

#include "model.h"

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
    m->cache_lora = -1;
    m->pictures = mem_alloc(sizeof *m->pictures);
    faults_init(&m->faults);
    return m;
}

/* Gives the model its entries, each with an empty cache; the settings are known. */
void model_make_batch(struct model *m, int size) {
    m->batch = mem_alloc((size_t)size * sizeof *m->batch);
    m->batch_size = size;
    for (int i = 0; i < size; i++) {
        m->batch[i].kv.capacity = (size_t)m->settings.max_context;
        m->batch[i].history.pending = -1;
    }
}

/* Frees a model that has no thread any more; NULL is allowed. */
void model_free(struct model *m) {
    if (!m) return;
    run_clear(m);
    chat_free(&m->chat);
    for (int i = 0; i < m->batch_size; i++) {
        ids_free(&m->batch[i].kv.ids);
        ids_free(&m->batch[i].transcript);
    }
    free(m->batch);
    ids_free(&m->loaded);
    pictures_free(m->pictures);
    free(m->pictures);
    free(m->settings.marks.start);
    free(m->settings.marks.end);
    words_free(m->loras, m->lora_count);
    script_free(m->script);
    weights_close(m->weights);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* Sets the activity and wakes everybody who waits for it; the lock is held. */
static void set_activity(struct model *m, enum activity activity) {
    m->activity = activity;
    pthread_cond_broadcast(&m->changed);
}

/* Executes the queued run on this thread and says that it has ended; the lock is held before and after. */
static void work(struct model *m) {
    m->activity = RUNNING;
    m->runner = pthread_self();
    pthread_mutex_unlock(&m->lock);
    int result = run_execute(m);
    pthread_mutex_lock(&m->lock);
    m->result = result;
    set_activity(m, m->run.async ? IDLE : DONE);
}

/* The library's thread: executes queued runs until the model is destroyed. */
static void *worker_main(void *argument) {
    struct model *m = argument;
    pthread_mutex_lock(&m->lock);
    for (;;) {
        /* A run accepted before rkllm_destroy still has to be ended by this thread. */
        if (m->destroying && m->activity == IDLE) break;
        if (m->activity == QUEUED)
            work(m);
        else
            pthread_cond_wait(&m->changed, &m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* A thread for one run, which was claimed for it already. */
static void *extra_main(void *argument) {
    struct model *m = argument;
    pthread_mutex_lock(&m->lock);
    work(m);
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* Waits for the thread of an earlier run to be gone; it has left the model before. */
static void join_extra(struct model *m) {
    if (m->has_extra) pthread_join(m->extra, NULL);
    m->has_extra = false;
}

/* Starts the library's thread; false when the system has none to give. */
bool model_start_worker(struct model *m) {
    return pthread_create(&m->worker, NULL, worker_main, m) == 0;
}

/* Aborts what runs, waits until it and everybody inside has left, and joins the library's thread. */
void model_stop_worker(struct model *m) {
    pthread_mutex_lock(&m->lock);
    m->destroying = true;
    m->abort.requested = true;
    pthread_cond_broadcast(&m->changed);
    while (m->activity != IDLE) pthread_cond_wait(&m->changed, &m->lock);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->worker, NULL);
    join_extra(m);
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
        m->abort = (struct abort_state){.forgotten = m->faults.abort_forgotten, .in_prefill = true};
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

/* Hands the prepared run to the thread that is to execute it; the lock is held. True when that is this one. */
static bool hand_over(struct model *m) {
    int wanted = m->run.faults.callback_thread;
    bool here = wanted == CALLBACKS_OF_CALLER && !m->run.async;
    m->runner = pthread_self();
    m->abort.forgotten = m->run.faults.abort_forgotten;
    if (wanted == CALLBACKS_OF_NEW_THREAD) {
        join_extra(m);
        /* RUNNING keeps the library's own thread away from it. */
        m->activity = RUNNING;
        m->has_extra = pthread_create(&m->extra, NULL, extra_main, m) == 0;
        if (m->has_extra) return false;
    }
    set_activity(m, here ? RUNNING : QUEUED);
    return here;
}

/* Has the prepared run executed: on this thread, the library's or a new one, as the faults say. Returns what rkllm_run
 * returns; the model is then still claimed by this thread, unless the run is asynchronous. */
int model_dispatch(struct model *m) {
    bool async = m->run.async;
    if (async && m->run.faults.run_async == ASYNC_HANGS) {
        report_unreturned(m);
        model_hang(m, true);
    }
    pthread_mutex_lock(&m->lock);
    bool here = hand_over(m);
    while (!here && !async && m->activity != DONE) pthread_cond_wait(&m->changed, &m->lock);
    int result = async ? 0 : m->result;
    pthread_mutex_unlock(&m->lock);
    return here ? run_execute(m) : result;
}
