/* model.h: what a handle stands for.
 *
 * One lock guards a model. `activity` says who may touch the rest: while it is not IDLE, the run in progress owns
 * `run`, `chat.transcript` and `history`, and other calls that would change them are refused. The KV cache is changed
 * under the lock only, because its size may be asked for at any time. Callbacks are made without the lock. */

#ifndef EMULATOR_MODEL_H
#define EMULATOR_MODEL_H

#include <pthread.h>
#include <stdbool.h>

#include "call_log.h"
#include "faults.h"
#include "kv_cache.h"
#include "rkllm_abi.h"
#include "script.h"

#if RKLLM_ABI >= 130
#define EMULATED_VERSION "1.3.0"
#elif RKLLM_ABI >= 121
#define EMULATED_VERSION "1.2.3"
#else
#define EMULATED_VERSION "1.2.0"
#endif

enum activity {
    IDLE,
    PREPARING, /* a run was accepted and is being checked */
    QUEUED,    /* waiting for the library's thread */
    RUNNING,
    DONE /* finished on the library's thread; the caller has not taken the result yet */
};

/* The init parameters that matter to an emulator. */
struct settings {
    int max_context;
    int max_new_tokens; /* 0 or less: until the context is full */
    int n_keep;
    bool skip_special;
    bool ignore_eos;
    bool is_async;
    bool cross_attn;
};

enum run_end { RUN_GOING, RUN_FINISHED, RUN_ABORTED, RUN_FAILED, RUN_PAUSED };

/* One generation, from the accepted call to its end; a paused one waits here for the call that resumes it. */
struct run {
    LLMResultCallback callback;
    void *userdata;
    bool async;
    bool keep_history;
    bool resumed;
    int max_new_tokens;
    char *save_path; /* NULL: the prompt cache is not saved */
    const struct rule *rule;
    struct faults faults;
    struct ids prompt; /* the whole context: history, then what is new */
    size_t reused;     /* leading tokens of prompt taken from the cache */
    size_t prefilled;  /* the others, once they were evaluated */
    struct ids answer;
    size_t next;        /* position in answer */
    struct ids sampled; /* every token so far, EOS included */
    struct buf held;    /* bytes of an unfinished character */
    char *stale_text;   /* what the last callback was given, poisoned */
    long delivered;     /* token callbacks so far */
    long waiting;       /* of these, in state WAITING */
    double prefill_ms, generate_ms;
    enum run_end end;
    struct call_log *log; /* the line of the call that is being answered */
};

/* What text input is wrapped in beyond the script's own template. */
struct chat_state {
    bool replaced; /* rkllm_set_chat_template was called: the built-in template, thinking and tools are off */
    char *system, *prefix, *postfix;
    bool has_tools;
    char *tools_system; /* the system turn with the tools section */
    char *result_tag;   /* what tool results are wrapped in */
    struct ids transcript; /* prompt and answer of the last run: what a role "tool" input continues */
};

/* What keep_history carries from run to run. */
struct history {
    bool kept;       /* the cache is the history of the last run */
    int32_t pending; /* the last sampled token, not in the cache yet; -1 when there is none */
};

struct model {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* activity, abort, destroy */
    pthread_t worker;
    pthread_t runner; /* the thread callbacks are made on while RUNNING */
    enum activity activity;
    bool abort_requested;
    bool destroying;
    int result; /* of the last run, for the caller that waits */

    int number;
    int console_level;
    double init_ms;
    struct script *script;
    struct settings settings;
    struct faults faults;
    struct speed speed;
    LLMResultCallback callback;
    void *callback_userdata; /* used when rkllm_run is given none */

    struct kv_cache kv;
    size_t system_tokens; /* leading cache entries that are the system prompt */
    bool prompt_cache_loaded;
    struct history history;
    struct chat_state chat;
    char **loras;
    size_t lora_count;
    bool paused;
    struct run run;
};

/* model.c: life, and the states of a run. */
struct model *model_create(void);
void model_free(struct model *m);
bool model_start_worker(struct model *m);
void model_stop_worker(struct model *m);
bool model_begin_change(struct model *m, const char *what);
void model_end_change(struct model *m);
bool model_begin_run(struct model *m);
int model_finish_run(struct model *m, int result);
int model_dispatch(struct model *m);
bool model_wait(struct model *m, double seconds, bool stops_on_abort);
bool model_abort_requested(struct model *m);
void model_hang(struct model *m, bool ignores_abort);
void model_forget(struct model *m, size_t keep);

/* open.c: everything rkllm_init checks. */
bool model_open(struct model *m, const RKLLMParam *param);

/* chat.c: text to the whole text of a prompt. */
void chat_render(const struct model *m, const RKLLMInput *input, bool continues, struct buf *out);
bool chat_is_tool_input(const RKLLMInput *input);
void chat_replace(struct chat_state *chat, const char *system, const char *prefix, const char *postfix);
bool chat_set_tools(struct chat_state *chat, const struct chat_template *template, const char *system,
                    const char *tools, const char *result_tag);
void chat_free(struct chat_state *chat);
const char *chat_system(const struct model *m);

/* prepare.c: a call's arguments to a run. */
bool run_prepare(struct model *m, const RKLLMInput *input, const RKLLMInferParam *infer, void *userdata);
void run_clear(struct run *run);

/* generate.c: prefill and decode. */
int run_execute(struct model *m);

/* deliver.c: what callbacks are given. */
bool deliver_token(struct model *m, int32_t id, bool special);
void deliver_end(struct model *m, LLMCallState state);
void deliver_release(struct run *run);

/* run_report.c: what is printed and logged about a run. */
void report_prompt(const struct model *m);
void report_end(const struct model *m);
void report_to_log(const struct model *m, struct call_log *log);

/* prompt_cache.c: files of prompt tokens. */
bool prompt_cache_save(const struct model *m, const char *path, const struct ids *prompt);
bool prompt_cache_load(struct model *m, const char *path);

#endif
