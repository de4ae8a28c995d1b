/* model.h: what a handle represents.
 *
 * One lock guards a model. `activity` says who may touch the rest: while it is not IDLE, the run in progress owns
 * `run` and the entries of `batch`, and other calls that would change them are refused. The KV cache is changed
 * under the lock only, because its size may be asked for at any time. Callbacks are made without the lock. */

#ifndef EMULATOR_MODEL_H
#define EMULATOR_MODEL_H

#include <pthread.h>
#include <stdbool.h>

#include "call_log.h"
#include "faults.h"
#include "kv_cache.h"
#include "rkllm_abi.h"
#include "pictures.h"
#include "script.h"
#include "values.h"
#include "weights.h"

#if RKLLM_ABI >= 131
#define EMULATED_VERSION "1.3.1"
#elif RKLLM_ABI >= 130
#define EMULATED_VERSION "1.3.0"
#elif RKLLM_ABI >= 121
#define EMULATED_VERSION "1.2.3"
#else
#define EMULATED_VERSION "1.2.0"
#endif

/* What the program that called rkllm_init brought along. */
struct host {
    LLMResultCallback callback;
    void *userdata; /* used when rkllm_run is given none */
#if RKLLM_ABI >= 130
    LLMTokenizerCallback tokenizer;
    void *tokenizer_userdata;
    LLMGetEmbedCallback embed;
    void *embed_userdata;
#endif
};

/* The text around the tokens of an image or video. */
struct image_marks {
    char *start, *end;
};

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
    struct sampling sampling;
    struct image_marks marks; /* up to 1.2.3; 1.3.0 gets them with every input */
};

enum run_end { RUN_GOING, RUN_FINISHED, RUN_ABORTED, RUN_FAILED, RUN_PAUSED };

/* What keep_history carries from run to run. */
struct history {
    bool kept;       /* the cache is the history of the last run */
    int32_t pending; /* the last sampled token, not in the cache yet; -1 when none exists */
};

/* One entry of the batch: its cache and memory, and its part of the run in progress. */
struct sequence {
    struct kv_cache kv;
    size_t system_tokens; /* leading cache entries that are the system prompt */
    struct history history;
    struct ids transcript; /* prompt and answer of the last run: what a role "tool" input continues */
    /* of the run */
    const struct rule *rule;
    struct ids prompt; /* the whole context: history, then what is new */
    size_t reused;     /* leading tokens of prompt taken from the cache */
    size_t prefilled;  /* the others, once they were evaluated */
    size_t pictures;   /* tokens of prompt that images and videos brought */
    struct ids answer;
    struct token_values values; /* what the rule says of the last row of logits */
    size_t next;                /* position in answer */
    float *rows;                /* hidden states or logits; NULL in a run that generates */
    struct ids sampled;         /* every token so far, EOS included */
    struct buf held;            /* bytes of an unfinished character */
    bool ended;
};

/* One generation, from the accepted call to its end; a paused one waits here for the call that resumes it. */
struct run {
    void *userdata;
    RKLLMInferMode mode;
    bool async;
    bool keep_history;
    bool resumed;
    int lora; /* which of the model's adapters; -1 without one */
    int max_new_tokens;
    struct sampling sampling;
    char *save_path; /* NULL: the prompt cache is not saved */
    struct faults faults;
    void *stale;    /* what the last callback was given, poisoned */
    long steps;     /* tokens sampled by an entry that has not ended */
    long delivered; /* token callbacks so far */
    long waiting;   /* of these, in state WAITING */
    long abort_noticed; /* delivered when the abort was first seen; -1 before */
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
};

/* What rkllm_abort has to know of the run; guarded by the lock. */
struct abort_state {
    bool requested;
    int forgotten; /* enum abort_forgotten */
    bool in_prefill;
};

struct model {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* activity, abort, destroy */
    pthread_t worker;
    pthread_t extra; /* the thread of the last run that was to have its own */
    bool has_extra;
    pthread_t runner; /* the thread callbacks are made on while RUNNING */
    enum activity activity;
    struct abort_state abort;
    bool destroying;
    int result; /* of the last run, for the caller that waits */

    struct model *older; /* the open model that was made before; loading.c's */
    int number;
    int console_level;
    double init_ms;
    struct script *script;
    struct weights *weights; /* answer in place of the script's rules; NULL: none */
    struct settings settings;
    struct faults faults;
    struct speed speed;
    struct host host;

    struct sequence *batch;
    int batch_size;
    int cache_lora;    /* the adapter the caches were made with; -1 without one */
    struct ids loaded; /* the prompt-cache file that was loaded; empty after its release */
    struct chat_state chat;
    struct pictures *pictures; /* that were in an input so far */
    char **loras;
    size_t lora_count;
    bool paused;
    const struct rule *wrong_rule; /* whose wrong token came last, and how often in a row */
    long wrong_count;
    struct run run;
};

/* model.c: life, and the states of a run. */
struct model *model_create(void);
void model_free(struct model *m);
void model_make_batch(struct model *m, int size);
bool model_start_worker(struct model *m);
void model_stop_worker(struct model *m);
bool model_begin_change(struct model *m, const char *what);
void model_end_change(struct model *m);
bool model_begin_run(struct model *m);
int model_finish_run(struct model *m, int result);
int model_dispatch(struct model *m);

/* forget.c: what stays in the KV caches. */
size_t model_system_part(const struct model *m, const struct sequence *entry);
void model_forget(struct model *m, bool keep_system);

/* waiting.c: time, aborts and hanging. */
bool model_wait(struct model *m, double seconds, bool stops_on_abort);
void model_request_abort(struct model *m);
bool model_abort_due(struct model *m);
void model_end_prefill(struct model *m);
void model_hang(struct model *m, bool ignores_abort);

/* open.c: everything rkllm_init checks. loading.c: what goes wrong there on purpose, in this process. */
bool model_open(struct model *m, const RKLLMParam *param);
void loading_begin(struct model *m);
bool loading_survives(struct model *m, struct call_log *log);
void loading_failed(struct model *m, struct call_log *log);
void loading_done(struct model *m);
bool loading_close(struct model *m);
struct model *loading_find(LLMHandle handle);

/* chat.c: text to the whole text of a prompt. */
void chat_render(const struct model *m, const RKLLMInput *input, const char *prompt, bool continues, struct buf *out);
bool chat_is_tool_input(const RKLLMInput *input);
void chat_replace(struct chat_state *chat, const char *system, const char *prefix, const char *postfix);
bool chat_set_tools(struct chat_state *chat, const struct chat_template *template, const char *system,
                    const char *tools, const char *result_tag);
void chat_free(struct chat_state *chat);
const char *chat_system(const struct model *m);

/* input.c: what a call brings, checked and turned into token ids. */
bool input_check(const struct model *m, const RKLLMInput *input);
int32_t input_row(const struct model *m, const float *row);
bool input_read(const struct model *m, const RKLLMInput *input, bool continues, struct buf *text,
                struct sequence *entry, struct ids *out);

/* media.c: images and videos in a text. */
bool media_check(const struct model *m, const RKLLMMultiModalInput *input);
bool media_read(const struct model *m, const RKLLMInput *input, bool continues, struct buf *text,
                struct sequence *entry, struct ids *out);

/* host.c: the callbacks of 1.3.0 for models without tokenizer or embedding. */
bool host_check(const struct model *m);
bool host_encode(const struct model *m, const char *text, size_t len, struct ids *out);
bool host_embed(const struct model *m, const int32_t *ids, size_t count);

/* prepare.c: a call's arguments to a run. */
bool run_prepare(struct model *m, const RKLLMInput *input, const RKLLMInferParam *infer, void *userdata);
void run_clear(struct model *m);

/* generate.c: prefill and decode. */
int run_execute(struct model *m);

/* deliver.c: what callbacks are given. */
bool deliver_step(struct model *m);
size_t rows_begin(const struct model *m, const struct sequence *entry);
float *rows_create(const struct model *m, struct sequence *entry);
bool deliver_rows(struct model *m);
void deliver_end(struct model *m, LLMCallState state);
void deliver_release(struct run *run);

/* run_report.c: what is printed and logged about a run. */
void report_prompt(const struct model *m);
void report_end(const struct model *m);
void report_to_log(const struct model *m, struct call_log *log);
void report_unreturned(const struct model *m);

/* prompt_cache.c: files of prompt tokens. */
bool prompt_cache_save(const struct model *m, const char *path, const struct ids *prompt);
void prompt_cache_trap(const char *path);
bool prompt_cache_load(struct model *m, const char *path);

#endif
