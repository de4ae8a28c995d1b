/* api.c: the life of a handle and its runs: the functions of the interface every program uses. The others are in
 * api_state.c. Each writes its line to the call log and leaves the work to the model. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "call_log.h"
#include "console.h"
#include "model.h"

/* See the header. What the vendor leaves undocumented (lengths, n_keep, flags) is this project's choice. */
RKLLMParam rkllm_createDefaultParam(void) {
    struct call_log log;
    RKLLMParam param;
    memset(&param, 0, sizeof param);
    param.max_context_len = 512;
    param.max_new_tokens = 256;
    param.n_keep = -1;
    param.top_k = 40;
    param.top_p = 0.9f;
    param.temperature = 0.8f;
    param.repeat_penalty = 1.1f;
    param.mirostat_tau = 5.0f;
    param.mirostat_eta = 0.1f;
    param.extend_param.enabled_cpus_num = 4;
    param.extend_param.enabled_cpus_mask = open_default_cpus();
#if RKLLM_ABI >= 121
    param.extend_param.n_batch = 1;
#endif
    call_log_begin(&log, "rkllm_createDefaultParam", 0);
    call_log_close(&log);
    call_log_end(&log, 0);
    return param;
}

/* Makes the model that *handle will represent; *handle stays NULL when that fails. Returns 0 or -1. */
static int open_handle(LLMHandle *handle, const RKLLMParam *param, const struct host *host, struct call_log *log) {
    double start = clock_ms();
    if (!handle) return -1;
    *handle = NULL;
    if (!param || !host->callback) {
        console_line('E', "rkllm_init needs parameters and a callback!");
        return -1;
    }
    struct model *m = model_create();
    m->host = *host;
    loading_begin(m);
    bool good = model_open(m, param) && loading_survives(m, log) && model_start_worker(m);
    call_log_number(log, "made_handle", good ? m->number : 0);
    if (!good) {
        console_line('E', "rkllm_init failed");
        loading_failed(m, log);
        model_free(m);
        return -1;
    }
    m->init_ms = clock_ms() - start;
    if (m->faults.init_null_handle) {
        model_stop_worker(m);
        model_free(m);
        return 0;
    }
    loading_done(m);
    *handle = m;
    return 0;
}

#if RKLLM_ABI >= 130
/* See the header. */
int rkllm_init(LLMHandle *handle, RKLLMParam *param, RKLLMCallback *callback) {
    struct host host = {0};
    if (callback)
        host = (struct host){callback->result_callback,    callback->result_userdata, callback->tokenizer_callback,
                             callback->tokenizer_userdata, callback->embed_callback,  callback->embed_userdata};
#else
/* See the header. */
int rkllm_init(LLMHandle *handle, RKLLMParam *param, LLMResultCallback callback) {
    struct host host = {.callback = callback};
#endif
    struct call_log log;
    call_log_begin(&log, "rkllm_init", 0);
    call_log_param(&log, param);
#if RKLLM_ABI >= 130
    call_log_bool(&log, "result_callback", host.callback != NULL);
    call_log_bool(&log, "tokenizer_callback", host.tokenizer != NULL);
    call_log_bool(&log, "embed_callback", host.embed != NULL);
#else
    call_log_bool(&log, "callback", host.callback != NULL);
#endif
    int result = open_handle(handle, param, &host, &log);
    call_log_close(&log);
    call_log_end(&log, result);
    return result;
}

/* Starts the line of a call that has a handle, and returns its model: NULL, with a line printed, for a handle that is
 * NULL or was destroyed. */
struct model *api_enter(struct call_log *log, const char *call, LLMHandle handle) {
    struct model *m = handle ? loading_find(handle) : NULL;
    call_log_begin(log, call, m ? m->number : 0);
    if (!m) console_line('E', "%s was called with %s handle!", call, handle ? "a destroyed" : "a NULL");
    return m;
}

/* Writes the line of a call whose args are complete, and returns result. */
int api_leave(struct call_log *log, int result) {
    call_log_close(log);
    call_log_end(log, result);
    return result;
}

/* True when the calling thread is inside a callback of this model. */
static bool is_inside_callback(struct model *m) {
    pthread_mutex_lock(&m->lock);
    bool inside = m->activity == RUNNING && pthread_equal(m->runner, pthread_self());
    pthread_mutex_unlock(&m->lock);
    return inside;
}

/* See the header. A run in progress is aborted and waited for. */
int rkllm_destroy(LLMHandle handle) {
    struct call_log log;
    struct model *m = api_enter(&log, "rkllm_destroy", handle);
    if (!m) return api_leave(&log, -1);
    if (is_inside_callback(m)) {
        console_line('E', "rkllm_destroy cannot be called from a callback!");
        return api_leave(&log, -1);
    }
    if (!loading_close(m)) return api_leave(&log, -1);
    model_stop_worker(m);
    model_free(m);
    return api_leave(&log, 0);
}

/* Prepares and dispatches a run. The line is written when the call returns; its args are closed here, so that the
 * run can add what came of it. */
static int run(LLMHandle handle, RKLLMInput *input, RKLLMInferParam *infer, void *userdata, bool async,
               const char *call) {
    struct call_log log;
    struct model *m = api_enter(&log, call, handle);
    call_log_inputs(&log, input, m ? m->batch_size : 1);
    call_log_infer(&log, infer);
    call_log_given(&log, "userdata", userdata);
    call_log_close(&log);
    int result = -1;
    if (m && model_begin_run(m)) {
        m->run.log = &log;
        if (!run_prepare(m, input, infer, userdata)) {
            model_finish_run(m, -1);
        } else {
            m->run.async = async || m->settings.is_async;
            bool waited = !m->run.async;
            result = model_dispatch(m);
            if (waited) model_finish_run(m, result);
        }
    }
    call_log_end(&log, result);
    return result;
}

/* See the header. Blocks until the run has ended or paused; a model opened with is_async returns at once. */
int rkllm_run(LLMHandle handle, RKLLMInput *input, RKLLMInferParam *infer, void *userdata) {
    return run(handle, input, infer, userdata, false, "rkllm_run");
}

/* See the header. Everything input and infer point at has been read when it returns. */
int rkllm_run_async(LLMHandle handle, RKLLMInput *input, RKLLMInferParam *infer, void *userdata) {
    return run(handle, input, infer, userdata, true, "rkllm_run_async");
}

/* See the header. Takes effect between two steps; idle handles answer as the fault abort-idle-fails says. */
int rkllm_abort(LLMHandle handle) {
    struct call_log log;
    struct model *m = api_enter(&log, "rkllm_abort", handle);
    if (!m) return api_leave(&log, -1);
    pthread_mutex_lock(&m->lock);
    bool running = m->activity != IDLE && m->activity != DONE;
    if (running) model_request_abort(m);
    if (!running && m->faults.leave_pause == PAUSE_LEFT_BY_ABORT) m->paused = false;
    int result = running || !m->faults.abort_idle_fails ? 0 : -1;
    pthread_mutex_unlock(&m->lock);
    return api_leave(&log, result);
}

/* Returns 1 while a run is active and 0 otherwise, as 1.3.0 words it; the fault is-running turns it round. */
int rkllm_is_running(LLMHandle handle) {
    struct call_log log;
    struct model *m = api_enter(&log, "rkllm_is_running", handle);
    if (!m) return api_leave(&log, -1);
    pthread_mutex_lock(&m->lock);
    bool running = m->activity != IDLE && m->activity != DONE;
    int answer = running != m->faults.is_running_inverted;
    pthread_mutex_unlock(&m->lock);
    return api_leave(&log, answer);
}
