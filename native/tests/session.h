/* session.h: a model made from a script's text, and everything its callbacks were told.
 *
 * Written against the interface alone, so it hides the three families' differences from the tests above it. */

#ifndef TESTS_SESSION_H
#define TESTS_SESSION_H

#include <pthread.h>

#include "buffers.h"
#include "rkllm_abi.h"

struct session {
    LLMHandle handle;
    char path[64];
    /* what callbacks said since session_forget; touched by the callback's thread while a run is active */
    struct buf text; /* of NORMAL calls */
    struct ids tokens;
    int normal, waiting, finish, error, null_texts;
    pthread_t thread; /* of the last callback */
    pthread_mutex_t lock;
    pthread_cond_t ended; /* signalled with the last callback of a run */
#if RKLLM_ABI >= 121
    RKLLMPerfStat perf;
#endif
    float *rows; /* a copy of the hidden states or logits that came last */
    int row_count, row_width;
    bool rows_are_logits;
    /* what the callback does */
    int pause_at; /* returns 1 for this token, counted from 1 */
    int abort_at; /* calls rkllm_abort for this token */
    void (*on_token)(struct session *s, RKLLMResult *result);
    int wish; /* what the callback returns otherwise */
    const char *kept; /* for tests that keep a pointer they must not keep */
};

/* How the model is opened; the zero value is a good default. */
struct session_options {
    int max_context;
    int max_new_tokens;
    bool skip_special;
    int n_keep; /* 0 means automatic here */
    bool is_async;
    bool ignore_eos;
    int n_batch;
#if RKLLM_ABI >= 130
    LLMTokenizerCallback tokenizer;
    LLMGetEmbedCallback embed;
#endif
};

/* The head of a script that speaks bytes and ChatML: ids 0 to 255 and the control tokens below. */
#define BYTES_HEAD                                                                                                    \
    "RKLLM-EMULATOR 1\nvocabulary bytes\ncontrol <|endoftext|> <|im_start|> <|im_end|>\neos <|im_end|>\n"            \
    "speed flat\n"

enum { ENDOFTEXT = 256, IM_START = 257, IM_END = 258 };

int session_open(struct session *s, const char *script);
int session_open_with(struct session *s, const char *script, const struct session_options *options);
void session_close(struct session *s);
void session_forget(struct session *s);

int session_ask(struct session *s, const char *text, int keep_history);
int session_ask_as(struct session *s, const char *role, const char *text, int keep_history, bool thinking);
int session_tokens(struct session *s, const char *text, int keep_history);
int session_rows(struct session *s, const char *text, RKLLMInferMode mode);
int session_input(struct session *s, RKLLMInput *input, int keep_history);
void session_encode(const char *text, struct ids *out);
int session_async(struct session *s, const char *text);
int session_save(struct session *s, const char *text, const char *path);
int session_clear(struct session *s);
long session_cache_size(struct session *s);
void session_wait_end(struct session *s);

void write_file(const char *path, const char *text);

#endif
