/* run_report.c: what is printed about a run at the levels of RKLLM_LOG_LEVEL, and what the call log says of it. */

#include "console.h"
#include "model.h"

/* Prints the pieces and ids of the prompt; pieces that are not ASCII are shown empty, as the vendor's are. */
static void print_tokens(const struct model *m) {
    struct buf line = {0};
    const struct ids *prompt = &m->run.prompt;
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
    const struct run *run = &m->run;
    if (m->console_level < CONSOLE_DETAILS) return;
    console_line('I', "current kv cache size: %zu", m->kv.ids.len);
    console_line('I', "keep history status: %d", run->keep_history);
    print_tokens(m);
    console_line('I', "kv cache matches %zu / %zu tokens of prompt", run->reused, run->prompt.len);
    console_line('I', "kv cache size after matching is: %zu", run->reused);
    console_line('I', "actual input tokens: %zu, history length: %zu", run->prompt.len - run->reused, run->reused);
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
    print_row("Prefill", run->prefill_ms, (int)run->prefilled);
    print_row("Generate", run->generate_ms, (int)run->sampled.len);
    console_line('I', RULE);
    console_line('I', RKLLM_ABI >= 121 ? " Peak Memory Usage (GB)" : " Memory Usage (GB)");
    console_line('I', " %.2f", peak_memory_mb() / 1024);
    console_line('I', RULE);
}

/* Prints what the levels show after a run. */
void report_end(const struct model *m) {
    const struct run *run = &m->run;
    if (m->console_level >= CONSOLE_DETAILS) {
        size_t system = m->system_tokens < m->kv.ids.len ? m->system_tokens : m->kv.ids.len;
        console_line('I', run->end == RUN_ABORTED ? "rkllm_run was aborted" : "rkllm_run ended");
        console_line('I', "In this conversation: the newly added user cache size is %zu; system cache size is %zu",
                     m->kv.ids.len - system, system);
    }
    if (m->console_level >= CONSOLE_TIMES && run->end != RUN_PAUSED) print_table(m);
    if (m->console_level >= CONSOLE_DETAILS) console_line('I', "rkllm_run finish!");
}

/* Adds "run" to the line of the call: what the model saw, what it said, how it ended. */
void report_to_log(const struct model *m, struct call_log *log) {
    static const char *const ends[] = {NULL, "finished", "aborted", "failed", "paused"};
    const struct run *run = &m->run;
    if (!log || !log->path) return;
    call_log_open(log, "run");
    call_log_text(log, "rule", run->rule ? run->rule->name : NULL);
    call_log_number(log, "rule_line", run->rule ? run->rule->line : 0);
    call_log_bool(log, "resumed", run->resumed);
    call_log_ids(log, "prompt", run->prompt.data, run->prompt.len);
    call_log_number(log, "reused", (double)run->reused);
    call_log_number(log, "prefill_tokens", (double)run->prefilled);
    call_log_ids(log, "sampled", run->sampled.data ? run->sampled.data : &(int32_t){0}, run->sampled.len);
    call_log_number(log, "delivered", (double)run->delivered);
    call_log_number(log, "waiting", (double)run->waiting);
    call_log_number(log, "kv_cache_size", (double)m->kv.ids.len);
    call_log_text(log, "end", ends[run->end]);
    call_log_close(log);
}
