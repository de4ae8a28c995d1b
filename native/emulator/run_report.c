/* run_report.c: what is printed about a run at the levels of RKLLM_LOG_LEVEL, and what the call log says of it. */

#include <stdio.h>

#include "console.h"
#include "model.h"

/* Prints the pieces and ids of the prompt; pieces that are not ASCII are shown empty, as the vendor's are. */
static void print_tokens(const struct model *m) {
    struct buf line = {0};
    const struct ids *prompt = &m->batch[0].prompt;
    for (size_t i = 0; i < prompt->len; i++) {
        size_t len;
        const char *text = vocabulary_text(m->script->vocabulary, prompt->data[i], &len);
        buf_puts(&line, i ? ", '" : " '");
        for (size_t at = 0; at < len; at++) {
            if (text[at] == '\n')
                buf_puts(&line, "\\n");
            else if (text[at] >= ' ' && text[at] < 0x7f)
                buf_putc(&line, text[at]);
        }
        buf_printf(&line, "':%d", prompt->data[i]);
    }
    console_line('I', "prompt tokens: [%s ], total: %zu", buf_text(&line), prompt->len);
    buf_free(&line);
}

/* Prints what level 2 shows before a run. */
void report_prompt(const struct model *m) {
    const struct sequence *first = &m->batch[0];
    if (m->console_level < CONSOLE_DETAILS) return;
    console_line('I', "current kv cache size: %zu", first->kv.ids.len);
    console_line('I', "keep history status: %d", m->run.keep_history);
    print_tokens(m);
    console_line('I', "kv cache matches %zu / %zu tokens of prompt", first->reused, first->prompt.len);
    console_line('I', "kv cache size after matching is: %zu", first->reused);
    console_line('I', "actual input tokens: %zu, history length: %zu", first->prompt.len - first->reused,
                 first->reused);
}

#define RULE "--------------------------------------------------------------------------------------"

/* Prints one line of the table. */
static void print_row(const char *stage, double ms, int tokens) {
    console_line('I', " %-12s  %-15.2f  %-8d  %-23.2f  %-23.2f", stage, ms, tokens, ms / tokens,
                 tokens / ms * 1000);
}

/* Prints the table of times that level 1 shows after a run. */
static void print_table(const struct model *m) {
    const struct run *run = &m->run;
#if RKLLM_ABI >= 121
    console_line('I', RULE);
    console_line('I', " Model init time (ms)  %.2f", m->init_ms);
#endif
    console_line('I', RULE);
    console_line('I', " %-12s  %-15s  %-8s  %-23s  %-23s", "Stage", "Total Time (ms)", "Tokens",
                 "Time per Token (ms)", "Tokens per Second");
    console_line('I', RULE);
#if RKLLM_ABI < 121
    console_line('I', " %-12s  %-15.2f  %-8s  %-23s  %-23s", "Init", m->init_ms, "/", "/", "/");
#endif
    size_t prefilled = 0;
    for (int i = 0; i < m->batch_size; i++) prefilled += m->batch[i].prefilled;
    print_row("Prefill", run->prefill_ms, (int)prefilled);
    print_row("Generate", run->generate_ms, (int)run->steps);
    console_line('I', RULE);
    console_line('I', RKLLM_ABI >= 121 ? " Peak Memory Usage (GB)" : " Memory Usage (GB)");
    console_line('I', " %.2f", peak_memory_mb() / 1024);
    console_line('I', RULE);
}

/* Prints what the levels show after a run. */
void report_end(const struct model *m) {
    const struct run *run = &m->run;
    if (m->console_level >= CONSOLE_DETAILS) {
        const struct sequence *first = &m->batch[0];
        size_t size = first->kv.ids.len, system = first->system_tokens < size ? first->system_tokens : size;
        console_line('I', run->end == RUN_ABORTED ? "rkllm_run was aborted" : "rkllm_run ended");
        console_line('I', "In this conversation: the newly added user cache size is %zu; system cache size is %zu",
                     size - system, system);
    }
    if (m->console_level >= CONSOLE_TIMES && run->end != RUN_PAUSED) print_table(m);
    if (m->console_level >= CONSOLE_DETAILS) console_line('I', "rkllm_run finish!");
}

/* Adds what one entry of the batch came to. */
static void log_entry(struct call_log *log, const struct sequence *entry) {
    call_log_text(log, "rule", entry->rule ? entry->rule->name : NULL);
    call_log_number(log, "rule_line", entry->rule ? entry->rule->line : 0);
    call_log_ids(log, "prompt", entry->prompt.data, entry->prompt.len);
    call_log_number(log, "reused", (double)entry->reused);
    call_log_number(log, "prefill_tokens", (double)entry->prefilled);
    call_log_number(log, "picture_tokens", (double)entry->pictures);
    call_log_ids(log, "sampled", entry->sampled.data ? entry->sampled.data : &(int32_t){0}, entry->sampled.len);
    call_log_number(log, "kv_cache_size", (double)entry->kv.ids.len);
}

/* Adds "run" to the line of the call: what the model saw, what it said, how it ended. The first entry of a batch
 * is there itself, the others are "entry_1" and so on. */
void report_to_log(const struct model *m, struct call_log *log) {
    static const char *const ends[] = {NULL, "finished", "aborted", "failed", "paused"};
    static const char *const modes[] = {"generate", "hidden", "logits"};
    const struct run *run = &m->run;
    char key[24];
    if (!log || !log->path) return;
    call_log_open(log, "run");
    log_entry(log, &m->batch[0]);
    call_log_text(log, "mode", modes[run->mode]);
    call_log_text(log, "lora", run->lora < 0 ? NULL : m->loras[run->lora]);
    call_log_bool(log, "resumed", run->resumed);
    call_log_number(log, "delivered", (double)run->delivered);
    call_log_number(log, "waiting", (double)run->waiting);
    call_log_text(log, "end", ends[run->end]);
    for (int i = 1; i < m->batch_size; i++) {
        snprintf(key, sizeof key, "entry_%d", i);
        call_log_open(log, key);
        log_entry(log, &m->batch[i]);
        call_log_close(log);
    }
    call_log_close(log);
}

/* Writes a line of a call that hangs, in case it never returns; should it do so, there will be another. */
void report_unreturned(const struct model *m) {
    struct call_log line;
    call_log_copy(&line, m->run.log);
    report_to_log(m, &line);
    call_log_end_unreturned(&line);
}
