/* loading.c: which models this process has open, and what goes wrong in rkllm_init on purpose; some of that depends on
 * the calls before. */

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "console.h"
#include "model.h"

static atomic_int begun;  /* calls of rkllm_init */
static atomic_int failed; /* of these, the ones that returned -1 */

/* The open models, by their links. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct model *newest;

/* Counts the call and reads the faults of the environment, the only ones there are when the file cannot be read. */
void loading_begin(struct model *m) {
    struct buf ignored = {0};
    atomic_fetch_add(&begun, 1);
    faults_apply_list(&m->faults, getenv("RKLLM_EMULATOR_FAULTS"), &ignored);
    buf_free(&ignored);
}

/* Ends the process as the faults ask, with the line of the call in the log. */
static void die(struct call_log *log, int signal_number) {
    call_log_close(log);
    call_log_end_unreturned(log);
    fault_die(signal_number);
}

/* True when a crash is asked for at this point of the process's life. */
static bool is_time_to_crash(const struct faults *faults) {
    if (!faults->init_signal) return false;
    switch (faults->init_crash) {
    case CRASH_AT_INIT: return true;
    case CRASH_AT_SECOND_INIT: return atomic_load(&begun) >= 2;
    case CRASH_AFTER_FAILURE: return atomic_load(&failed) >= 1;
    }
    return false;
}

/* Prints what the layers below say when the NPU has no memory left. */
static void print_memory(void) {
    console_npu("failed to allocate handle, ret: -1, errno: 14, errstr: Bad address");
    console_npu("failed to malloc npu memory, size: 4022272000, flags: 0x2");
    console_npu("load model file error!");
}

/* Does what was asked to go wrong once the parameters are accepted; false when rkllm_init is to fail. */
bool loading_survives(struct model *m, struct call_log *log) {
    const struct faults *faults = &m->faults;
    if (faults->log_noise) console_noise();
    model_wait(m, faults->init_seconds, false);
    if (is_time_to_crash(faults)) die(log, faults->init_signal);
    bool full = faults->init_memory == MEMORY_IS_FULL;
    full = full || (faults->init_memory == MEMORY_HOLDS_ONE && loading_find(NULL));
    if (full) print_memory();
    return !full && !faults->init_fails;
}

/* Counts a failed call; it may be the one too many. */
void loading_failed(struct model *m, struct call_log *log) {
    bool again = atomic_fetch_add(&failed, 1) >= 1;
    if (again && m->faults.init_signal && m->faults.init_crash == CRASH_AT_SECOND_FAILURE)
        die(log, m->faults.init_signal);
}

/* Enters an open model. */
void loading_done(struct model *m) {
    pthread_mutex_lock(&lock);
    m->older = newest;
    newest = m;
    pthread_mutex_unlock(&lock);
}

/* Strikes a model out; false when it is not there, or no more. */
bool loading_close(struct model *m) {
    pthread_mutex_lock(&lock);
    struct model **link = &newest;
    while (*link && *link != m) link = &(*link)->older;
    bool found = *link != NULL;
    if (found) *link = m->older;
    pthread_mutex_unlock(&lock);
    return found;
}

/* Returns the open model of a handle, any for NULL; NULL when none exists. Rockchip's flask_server.py
 * destroys its handle twice when it is interrupted, so a handle may be of a model that is gone. */
struct model *loading_find(LLMHandle handle) {
    pthread_mutex_lock(&lock);
    struct model *found = newest;
    while (handle && found && found != handle) found = found->older;
    pthread_mutex_unlock(&lock);
    return found;
}
