/* rkllm_abi.h: the C interface of librkllmrt.so, declared for this project.
 *
 * RKLLM_ABI selects one of four families that no program can mix:
 *
 *     120   runtime 1.2.0            callbacks return nothing
 *     121   runtimes 1.2.1 to 1.2.3  callbacks return a status, inputs carry a role, results carry figures
 *     130   runtime 1.3.0            callbacks in a struct, image tags per input, sampling per run
 *     131   runtime 1.3.1            inputs may hold audio
 *
 * Names, member order and widths are facts of the interface; the words here are our own. A program written
 * for the vendor's header compiles against this one when it includes it instead. Plain C11, and C++11.
 *
 * Layout check: native/tests/layout.c prints every size and offset the compiler chose. */

#ifndef RKLLM_ABI_H
#define RKLLM_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef RKLLM_ABI
#define RKLLM_ABI 131
#endif

#if RKLLM_ABI != 120 && RKLLM_ABI != 121 && RKLLM_ABI != 130 && RKLLM_ABI != 131
#error "RKLLM_ABI must be 120, 121, 130 or 131"
#endif

#if defined(__GNUC__)
#define RKLLM_EXPORT __attribute__((visibility("default")))
#else
#define RKLLM_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define CPU0 (1 << 0)
#define CPU1 (1 << 1)
#define CPU2 (1 << 2)
#define CPU3 (1 << 3)
#define CPU4 (1 << 4)
#define CPU5 (1 << 5)
#define CPU6 (1 << 6)
#define CPU7 (1 << 7)

/* One loaded model. NULL is never a live handle. */
typedef void *LLMHandle;

/* What a result callback is being told. */
typedef enum {
    RKLLM_RUN_NORMAL = 0,  /* one token, with whole characters of text */
    RKLLM_RUN_WAITING = 1, /* one token, its bytes held until the character is complete */
    RKLLM_RUN_FINISH = 2,  /* last call of a run that ended well */
    RKLLM_RUN_ERROR = 3    /* last call of a run that failed */
} LLMCallState;

/* Which member of the union in RKLLMInput is meant. */
typedef enum {
    RKLLM_INPUT_PROMPT = 0,
    RKLLM_INPUT_TOKEN = 1,
    RKLLM_INPUT_EMBED = 2,
    RKLLM_INPUT_MULTIMODAL = 3
} RKLLMInputType;

/* What a run computes. */
typedef enum {
    RKLLM_INFER_GENERATE = 0,
    RKLLM_INFER_GET_LAST_HIDDEN_LAYER = 1,
    RKLLM_INFER_GET_LOGITS = 2
} RKLLMInferMode;

typedef struct {
    int32_t base_domain_id;     /* IOMMU domain to start in */
    int8_t embed_flash;         /* 1: embedding table stays in storage */
    int8_t enabled_cpus_num;    /* must equal the bits set in the mask */
    uint32_t enabled_cpus_mask; /* CPU0..CPU7 */
#if RKLLM_ABI >= 121
    uint8_t n_batch;
    int8_t use_cross_attn;
    uint8_t reserved[104];
#else
    uint8_t reserved[106];
#endif
} RKLLMExtendParam;

typedef struct {
    const char *model_path;
    int32_t max_context_len;
    int32_t max_new_tokens;
    int32_t top_k;
    int32_t n_keep; /* leading cache entries that survive a full context */
    float top_p;
    float temperature;
    float repeat_penalty;
    float frequency_penalty;
    float presence_penalty;
    int32_t mirostat;
    float mirostat_tau;
    float mirostat_eta;
    bool skip_special_token;
#if RKLLM_ABI >= 130
    bool ignore_eos_token;
#endif
    bool is_async;
#if RKLLM_ABI < 130
    const char *img_start;
    const char *img_end;
    const char *img_content;
#endif
    RKLLMExtendParam extend_param;
} RKLLMParam;

typedef struct {
    const char *lora_adapter_path;
    const char *lora_adapter_name;
    float scale;
} RKLLMLoraAdapter;

typedef struct {
    float *embed; /* n_tokens rows */
    size_t n_tokens;
} RKLLMEmbedInput;

typedef struct {
    int32_t *input_ids;
    size_t n_tokens;
} RKLLMTokenInput;

#if RKLLM_ABI >= 130
typedef struct {
    char *prompt;
    struct {
        float *image_embed;
        size_t n_image_tokens;
        size_t n_image;
        const char *image_start;
        const char *image_end;
        const char *image_content;
        size_t image_width;
        size_t image_height;
    } image;
    struct {
        float *video_embed;
        size_t n_frame_tokens;
        size_t n_frame_per_video;
        size_t n_video;
        const char *video_start;
        const char *video_end;
        const char *video_content;
        size_t frame_width;
        size_t frame_height;
    } video;
#if RKLLM_ABI >= 131
    struct {
        float *audio_embed;
        size_t n_audio_tokens;
        size_t n_audio;
        const char *audio_start;
        const char *audio_end;
        const char *audio_content;
    } audio;
#endif
} RKLLMMultiModalInput;
#else
typedef struct {
    char *prompt;
    float *image_embed;
    size_t n_image_tokens;
#if RKLLM_ABI >= 121
    size_t n_image;
    size_t image_width;
    size_t image_height;
#endif
} RKLLMMultiModalInput;
#endif

typedef struct {
#if RKLLM_ABI >= 121
    const char *role; /* "user" or "tool" */
    bool enable_thinking;
#endif
    RKLLMInputType input_type;
    union {
        const char *prompt_input;
        RKLLMEmbedInput embed_input;
        RKLLMTokenInput token_input;
        RKLLMMultiModalInput multimodal_input;
    };
} RKLLMInput;

typedef struct {
    const char *lora_adapter_name;
} RKLLMLoraParam;

typedef struct {
    int save_prompt_cache;
    const char *prompt_cache_path;
} RKLLMPromptCacheParam;

#if RKLLM_ABI >= 130
typedef struct {
    int32_t top_k;
    float top_p;
    float temperature;
    float repeat_penalty;
    float frequency_penalty;
    float presence_penalty;
    int32_t mirostat;
    float mirostat_tau;
    float mirostat_eta;
} RKLLMSamplingParam;
#endif

typedef struct {
    RKLLMInferMode mode;
    RKLLMLoraParam *lora_params;
    RKLLMPromptCacheParam *prompt_cache_params;
#if RKLLM_ABI >= 130
    RKLLMSamplingParam *sampling_params; /* NULL: the values given at init; else all nine replace them */
#endif
    int keep_history;
#if RKLLM_ABI >= 130
    int32_t max_new_tokens; /* 0 or less: the value given at init */
#endif
} RKLLMInferParam;

typedef struct {
    const float *hidden_states; /* num_tokens rows of embd_size */
    int embd_size;
    int num_tokens;
} RKLLMResultLastHiddenLayer;

typedef struct {
    const float *logits; /* num_tokens rows of vocab_size */
    int vocab_size;
    int num_tokens;
} RKLLMResultLogits;

#if RKLLM_ABI >= 121
typedef struct {
    float prefill_time_ms;
    int prefill_tokens; /* really evaluated, after reuse of the KV cache */
    float generate_time_ms;
    int generate_tokens;
    float memory_usage_mb;
} RKLLMPerfStat;
#endif

/* Everything a result points at belongs to the library and dies when the callback returns. */
typedef struct {
    const char *text; /* may be NULL */
    int32_t token_id;
    RKLLMResultLastHiddenLayer last_hidden_layer;
    RKLLMResultLogits logits;
#if RKLLM_ABI >= 121
    RKLLMPerfStat perf; /* valid with RKLLM_RUN_FINISH only */
#endif
} RKLLMResult;

#if RKLLM_ABI >= 121
typedef struct {
    float *encoder_k_cache;
    float *encoder_v_cache;
    float *encoder_mask;
    int32_t *encoder_pos;
    int num_tokens;
} RKLLMCrossAttnParam;
#endif

#if RKLLM_ABI >= 121
/* Returns 0 to go on, 1 to pause the run, from 1.3.0 also 2 to go on and drop the output buffer. */
typedef int (*LLMResultCallback)(RKLLMResult *result, void *userdata, LLMCallState state);
#else
typedef void (*LLMResultCallback)(RKLLMResult *result, void *userdata, LLMCallState state);
#endif

#if RKLLM_ABI >= 130
typedef int (*LLMTokenizerCallback)(void *userdata, const char *text, int32_t text_len, int32_t *tokens,
                                    int32_t n_tokens_max);
typedef int (*LLMGetEmbedCallback)(void *userdata, int32_t *tokens, uint64_t num_tokens, void *embed,
                                   uint64_t len_bytes);
typedef struct {
    LLMResultCallback result_callback;
    void *result_userdata;
    LLMTokenizerCallback tokenizer_callback;
    void *tokenizer_userdata;
    LLMGetEmbedCallback embed_callback;
    void *embed_userdata;
} RKLLMCallback;
#endif

/* Every int below is 0 for success and -1 for failure unless its line says otherwise. */

RKLLM_EXPORT RKLLMParam rkllm_createDefaultParam(void);
#if RKLLM_ABI >= 130
RKLLM_EXPORT int rkllm_init(LLMHandle *handle, RKLLMParam *param, RKLLMCallback *callback);
#else
RKLLM_EXPORT int rkllm_init(LLMHandle *handle, RKLLMParam *param, LLMResultCallback callback);
#endif
RKLLM_EXPORT int rkllm_destroy(LLMHandle handle);
RKLLM_EXPORT int rkllm_run(LLMHandle handle, RKLLMInput *input, RKLLMInferParam *infer, void *userdata);
RKLLM_EXPORT int rkllm_run_async(LLMHandle handle, RKLLMInput *input, RKLLMInferParam *infer, void *userdata);
RKLLM_EXPORT int rkllm_abort(LLMHandle handle);
RKLLM_EXPORT int rkllm_is_running(LLMHandle handle); /* 1 running, 0 not, in the words of 1.3.0 */
RKLLM_EXPORT int rkllm_load_lora(LLMHandle handle, RKLLMLoraAdapter *adapter);
RKLLM_EXPORT int rkllm_load_prompt_cache(LLMHandle handle, const char *path);
RKLLM_EXPORT int rkllm_release_prompt_cache(LLMHandle handle);
#if RKLLM_ABI >= 121
RKLLM_EXPORT int rkllm_clear_kv_cache(LLMHandle handle, int keep_system_prompt, int *start_pos, int *end_pos);
RKLLM_EXPORT int rkllm_get_kv_cache_size(LLMHandle handle, int *cache_sizes); /* n_batch ints */
RKLLM_EXPORT int rkllm_set_function_tools(LLMHandle handle, const char *system_prompt, const char *tools,
                                          const char *tool_response_str);
RKLLM_EXPORT int rkllm_set_cross_attn_params(LLMHandle handle, RKLLMCrossAttnParam *params);
#else
RKLLM_EXPORT int rkllm_clear_kv_cache(LLMHandle handle, int keep_system_prompt);
#endif
RKLLM_EXPORT int rkllm_set_chat_template(LLMHandle handle, const char *system_prompt, const char *prompt_prefix,
                                         const char *prompt_postfix);

#ifdef __cplusplus
}
#endif

#endif
