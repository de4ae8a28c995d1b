/* generate.c: prefill and decode. Time passes here, aborts are honoured here, faults happen here. */

#include <signal.h>
#include <stdlib.h>

#include "console.h"
#include "model.h"
#include "source_file.h"

/* How an abort gets past a wait: not at all when it is to take effect later. */
static bool is_prompt(const struct run *run) { return run->faults.abort_late == 0; }

/* Puts what was evaluated of an entry's prompt into its cache; only the reused part of it when that was cut short. */
static void store_prompt(struct sequence *entry, bool whole) {
    ids_truncate(&entry->kv.ids, 0);
    ids_append(&entry->kv.ids, entry->prompt.data, whole ? entry->prompt.len : entry->reused);
    entry->prefilled = whole ? entry->prompt.len - entry->reused : 0;
}

/* Waits as long as the evaluation of the prompts takes; false when it was cut short. */
static bool spend_prefill(struct model *m) {
    struct run *run = &m->run;
    double seconds = 0;
    for (int i = 0; i < m->batch_size; i++)
        seconds += speed_of_prefill(&m->speed, m->batch[i].reused, m->batch[i].prompt.len - m->batch[i].reused);
    if (run->faults.hang_in_prefill) {
        report_unreturned(m);
        model_hang(m, run->faults.hang_ignores_abort);
        return false;
    }
    return model_wait(m, seconds, run->faults.abort_in_prefill);
}

static bool is_abort_due(void *model) { return model_abort_due(model); }

/* Lets the weights write what the grammar in the file $RKLLM_EMULATOR_GRAMMAR allows; an empty file allows all. */
static void hold_to_grammar(struct model *m) {
    const char *path = getenv("RKLLM_EMULATOR_GRAMMAR");
    struct buf grammar = {0};
    if (path && *path && !source_file_read(path, &grammar)) console_line('E', "the grammar %s cannot be read!", path);
    for (int i = 0; i < m->batch_size; i++)
        if (!weights_hold_to(m->weights, i, grammar.len ? buf_text(&grammar) : NULL))
            console_line('E', "libllama cannot read the grammar in %s!", path);
    buf_free(&grammar);
}

/* Computes what the run needs of its prompts with the weights, where the model has some. */
static enum weights_outcome compute_prompts(struct model *m) {
    struct run *run = &m->run;
    enum weights_outcome outcome = WEIGHTS_DONE;
    weights_stop stop = run->faults.abort_in_prefill ? is_abort_due : NULL;
    if (m->weights) hold_to_grammar(m);
    for (int i = 0; m->weights && i < m->batch_size && outcome == WEIGHTS_DONE; i++) {
        struct sequence *entry = &m->batch[i];
        if (run->mode == RKLLM_INFER_GENERATE)
            outcome = weights_hold(m->weights, i, &entry->prompt, stop, m);
        else
            outcome = weights_rows(m->weights, i, &entry->prompt, rows_begin(m, entry),
                                   run->mode == RKLLM_INFER_GET_LOGITS, rows_create(m, entry), stop, m);
    }
    if (outcome == WEIGHTS_FAILED) console_line('E', "the weights could not be computed behind %zu tokens!", m->batch[0].reused);
    return outcome;
}

/* Evaluates the part of the prompts that the caches do not hold. Not interruptible unless a fault says so, as on the
 * board, where an abort took effect when the prefill was done (rknn-llm #400). Returns what ended the run in it. */
static enum run_end prefill(struct model *m) {
    double start = clock_ms();
    bool whole = spend_prefill(m);
    enum weights_outcome outcome = whole ? compute_prompts(m) : WEIGHTS_STOPPED;
    whole = outcome == WEIGHTS_DONE;
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < m->batch_size; i++) store_prompt(&m->batch[i], whole);
    m->cache_lora = m->run.lora;
    pthread_mutex_unlock(&m->lock);
    m->run.prefill_ms = clock_ms() - start;
    return whole ? RUN_GOING : outcome == WEIGHTS_FAILED ? RUN_FAILED : RUN_ABORTED;
}

/* Fetches what the model needs for the prompts from the host; false when that, or the memory, is not to be had. */
static bool is_supplied(struct model *m) {
    bool good = true;
    for (int i = 0; i < m->batch_size && good; i++) {
        const struct sequence *entry = &m->batch[i];
        size_t from = entry->reused;
        while (from < entry->prompt.len && entry->prompt.data[from] < 0) from++;
        good = host_embed(m, entry->prompt.data + from, entry->prompt.len - from);
    }
    if (!m->run.faults.run_memory) return good;
    console_npu("failed to malloc npu memory, size: 268435456, flags: 0x2");
    return false;
}

/* Puts the token sampled before into the cache; a full cache loses its older entries first. */
static void evaluate_previous(struct model *m, struct sequence *entry) {
    if (!entry->sampled.len) return;
    pthread_mutex_lock(&m->lock);
    size_t before = entry->kv.ids.len, dropped = 0;
    size_t keep = m->settings.n_keep >= 0 ? (size_t)m->settings.n_keep : entry->system_tokens;
    if (before >= entry->kv.capacity) dropped = kv_shift(&entry->kv, keep);
    ids_put(&entry->kv.ids, entry->sampled.data[entry->sampled.len - 1]);
    pthread_mutex_unlock(&m->lock);
    if (dropped)
        console_line('W', "context to be full[%zu + 1], delete the kv cache in [%zu, %zu), total: %zu", before, keep,
                     keep + dropped, before - dropped);
}

static bool is_eos(const struct model *m, int32_t id) {
    for (size_t i = 0; i < m->script->eos.len; i++)
        if (m->script->eos.data[i] == id) return true;
    return m->weights && weights_ends(m->weights, id);
}

/* Returns the next token of the script's answer, then EOS; after that the answer again, which only a run that ignores
 * EOS comes to. */
static int32_t next_of_answer(const struct model *m, struct sequence *entry) {
    bool more = entry->next < entry->answer.len;
    int32_t id = more ? entry->answer.data[entry->next] : m->script->eos.data[0];
    entry->next = more ? entry->next + 1 : 0;
    return id;
}

/* Draws the next token from the weights into *id; false when they could not be computed. */
static bool next_of_weights(struct model *m, struct sequence *entry, int32_t *id) {
    int number = (int)(entry - m->batch);
    struct ids recent = {0};
    size_t from = entry->prompt.len > PENALTY_WINDOW ? entry->prompt.len - PENALTY_WINDOW : 0;
    ids_append(&recent, entry->prompt.data + from, entry->prompt.len - from);
    ids_append(&recent, entry->sampled.data, entry->sampled.len);
    bool good = weights_hold(m->weights, number, &entry->kv.ids, NULL, NULL) == WEIGHTS_DONE;
    if (good)
        *id = weights_sample(m->weights, number, &m->run.sampling, &recent);
    else
        console_line('E', "the weights could not be computed behind %zu tokens!", entry->kv.ids.len);
    ids_free(&recent);
    return good;
}

/* Samples the next token; where the NPU computes nothing, it is token 0 instead. False when that failed, else *eos is
 * true for a real EOS. */
static bool sample(struct model *m, struct sequence *entry, bool *eos) {
    bool more = m->weights || entry->next < entry->answer.len;
    int32_t id;
    if (m->weights) {
        if (!next_of_weights(m, entry, &id)) return false;
    } else {
        id = next_of_answer(m, entry);
    }
    if (m->run.faults.matmul_fails && more) {
        struct buf type = {0};
        for (const char *at = m->script->dtype; *at; at++)
            buf_putc(&type, *at >= 'A' && *at <= 'Z' ? (char)(*at - 'A' + 'a') : *at);
        console_line('E', "matmul(%s) run failed", buf_text(&type));
        buf_free(&type);
        id = 0;
    }
    ids_put(&entry->sampled, id);
    *eos = is_eos(m, id);
    return true;
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
        report_unreturned(m);
        model_hang(m, faults->hang_ignores_abort);
    }
    if (run->delivered == faults->stall_after) model_wait(m, faults->stall_seconds, is_prompt(run));
    return faults->error_after == FAULT_NEVER || run->delivered < faults->error_after;
}

/* True when every entry has ended: by EOS, or because its context has no room left and none may be made, there being
 * no limit on new tokens to end the run. */
static bool all_ended(struct model *m) {
    bool ended = true;
    for (int i = 0; i < m->batch_size; i++) {
        struct sequence *entry = &m->batch[i];
        bool full = m->run.max_new_tokens == INT32_MAX && entry->kv.ids.len >= entry->kv.capacity;
        if (full && entry->sampled.len) entry->ended = true;
        ended = ended && entry->ended;
    }
    return ended;
}

/* Samples a token for every entry that goes on and tells the callback. Returns what the run comes to by it. */
static enum run_end step(struct model *m) {
    bool ignores_eos = m->run.faults.ignore_eos || m->settings.ignore_eos;
    bool eos[UINT8_MAX] = {false};
    for (int i = 0; i < m->batch_size; i++) {
        struct sequence *entry = &m->batch[i];
        if (entry->ended) continue;
        if (entry->sampled.len && !host_embed(m, &entry->sampled.data[entry->sampled.len - 1], 1)) return RUN_FAILED;
        evaluate_previous(m, entry);
        if (!sample(m, entry, &eos[i])) return RUN_FAILED;
        eos[i] = eos[i] && !ignores_eos;
    }
    m->run.steps++;
    bool pause = deliver_step(m), ended = true;
    for (int i = 0; i < m->batch_size; i++) {
        m->batch[i].ended = m->batch[i].ended || eos[i];
        ended = ended && m->batch[i].ended;
    }
    return ended ? RUN_FINISHED : pause ? RUN_PAUSED : RUN_GOING;
}

/* Decodes until something ends the run, and says what. */
static enum run_end decode(struct model *m) {
    struct run *run = &m->run;
    double step_seconds = m->speed.decode > 0 ? 1 / m->speed.decode : 0;
    enum run_end end = RUN_GOING;
    while (end == RUN_GOING && run->steps < run->max_new_tokens && !all_ended(m)) {
        if (model_abort_due(m)) return RUN_ABORTED;
        if (!survive_faults(m)) return RUN_FAILED;
        model_wait(m, step_seconds, is_prompt(run));
        if (model_abort_due(m)) return RUN_ABORTED;
        end = step(m);
    }
    return end == RUN_GOING ? RUN_FINISHED : end;
}

/* Delivers hidden states or logits in place of an answer. A callback that returns 1 ends the run there, without
 * FINISH; there is nothing to resume. */
static enum run_end compute_rows(struct model *m) {
    if (model_abort_due(m)) return RUN_ABORTED;
    if (!survive_faults(m)) return RUN_FAILED;
    if (m->faults.logits_history_dies && m->run.mode == RKLLM_INFER_GET_LOGITS && m->run.keep_history) {
        console_line('E', "GGML_ASSERT(mask->ne[0] == a->ne[0]) failed");
        report_to_log(m, m->run.log);
        call_log_end_unreturned(m->run.log);
        fault_die(SIGABRT);
    }
    m->run.steps = 1;
    return deliver_rows(m) ? RUN_PAUSED : model_abort_due(m) ? RUN_ABORTED : RUN_FINISHED;
}

/* Empties an entry's cache as far as the faults want, when the run was not to leave its tokens. */
static void leave_cache(const struct model *m, struct sequence *entry) {
    bool leaves = m->faults.reuse == REUSE_ALWAYS || entry->history.kept || m->paused;
    if (m->faults.logits_cache_dropped && m->run.mode == RKLLM_INFER_GET_LOGITS) leaves = false;
    if (!leaves) ids_truncate(&entry->kv.ids, model_system_part(m, entry));
}

/* Keeps what the next run needs of this one. */
static void settle(struct model *m) {
    struct run *run = &m->run;
    bool generated = run->mode == RKLLM_INFER_GENERATE;
    bool whole = m->faults.last_token_cached && run->end != RUN_PAUSED;
    for (int i = 0; whole && i < m->batch_size; i++) evaluate_previous(m, &m->batch[i]);
    pthread_mutex_lock(&m->lock);
    m->paused = run->end == RUN_PAUSED && generated;
    for (int i = 0; i < m->batch_size; i++) {
        struct sequence *entry = &m->batch[i];
        bool kept = run->keep_history || (m->faults.history_stays && entry->history.kept);
        entry->history.kept = kept;
        bool pends = kept && !whole && entry->sampled.len;
        entry->history.pending = pends ? entry->sampled.data[entry->sampled.len - 1] : -1;
        leave_cache(m, entry);
        ids_truncate(&entry->transcript, 0);
        ids_append(&entry->transcript, entry->prompt.data, entry->prompt.len);
        ids_append(&entry->transcript, entry->sampled.data, entry->sampled.len);
    }
    pthread_mutex_unlock(&m->lock);
    /* Reported of an abort between tokens: the file holds the whole prompt. */
    bool aborted = run->end == RUN_ABORTED && run->steps > 0 && m->faults.aborted_save;
    if (run->save_path && (run->end == RUN_FINISHED || aborted)) {
        prompt_cache_save(m, run->save_path, &m->batch[0].prompt);
        if (aborted && m->faults.aborted_save == ABORTED_SAVES_A_TRAP) prompt_cache_trap(run->save_path);
    }
}

/* Makes the last callback of the run, if it has one. */
static void conclude(struct model *m) {
    int after_abort = m->run.faults.after_abort;
    enum run_end end = m->run.end;
    if (end == RUN_FINISHED && m->run.mode != RKLLM_INFER_GENERATE && m->faults.rows_unfinished)
        ; /* the rows were all that comes */
    else if (end == RUN_FINISHED || (end == RUN_ABORTED && after_abort == ABORT_FINISHES))
        deliver_end(m, RKLLM_RUN_FINISH);
    else if (end == RUN_FAILED || (end == RUN_ABORTED && after_abort == ABORT_ERRORS))
        deliver_end(m, RKLLM_RUN_ERROR);
    deliver_release(&m->run);
}

/* Takes a prepared run through prefill and decode, a resumed one through decode only. */
static enum run_end play(struct model *m) {
    struct run *run = &m->run;
    if (!run->resumed) {
        if (!is_supplied(m)) return RUN_FAILED;
        enum run_end end = prefill(m);
        if (end != RUN_GOING) return end;
    }
    model_end_prefill(m);
    double start = clock_ms();
    enum run_end end = run->mode == RKLLM_INFER_GENERATE ? decode(m) : compute_rows(m);
    run->generate_ms += clock_ms() - start;
    return end;
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
    run->end = play(m);
    settle(m);
    conclude(m);
    report_end(m);
    report_to_log(m, run->log);
    bool failed = run->end == RUN_FAILED || (run->end == RUN_ABORTED && run->faults.abort_return);
    if (run->async) call_log_end(&ended, failed ? -1 : 0);
    run->log = NULL;
    return failed ? -1 : 0;
}
