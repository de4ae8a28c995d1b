/* llama_library.h: the functions of llama.cpp's libllama that a model with real weights is computed with.
 *
 * The library is opened at run time, and no header of it is needed to build the emulator. Its parameter structs differ
 * between releases: they are blocks that its own functions fill, of which only the first four numbers of the context's
 * are changed here (context, batch, micro-batch, sequences). */

#ifndef EMULATOR_LLAMA_LIBRARY_H
#define EMULATOR_LLAMA_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

#include "buffers.h"

/* The folder with libllama; without it ~/.local/share/rkllm-mcp/llama and the system's folders. */
#define LLAMA_FOLDER_VARIABLE "RKLLM_EMULATOR_LLAMA"

/* Larger than any release's struct. It is passed by value; the library reads only its own part. */
struct llama_params {
    union {
        uint32_t numbers[4];
        unsigned char bytes[1024];
        void *alignment;
    };
};

/* libllama's llama_batch. */
struct llama_tokens {
    int32_t count;
    int32_t *ids;
    float *rows;
    int32_t *positions;
    int32_t *sequence_counts;
    int32_t **sequences;
    int8_t *outputs;
};

/* libllama's llama_token_data and llama_token_data_array. */
struct llama_candidate {
    int32_t id;
    float logit, share;
};

struct llama_candidates {
    struct llama_candidate *data;
    size_t size;
    int64_t selected;
    bool sorted;
};

struct llama_library {
    void (*backend_init)(void);
    void (*log_set)(void (*)(int, const char *, void *), void *);
    struct llama_params (*model_default)(void);
    struct llama_params (*context_default)(void);
    void *(*model_load)(const char *, struct llama_params);
    void *(*context_create)(void *, struct llama_params);
    void (*model_free)(void *);
    void (*context_free)(void *);
    void (*set_threads)(void *, int32_t, int32_t);
    void (*set_embeddings)(void *, bool);
    int32_t (*pooling)(const void *);
    const void *(*vocab)(const void *);
    int32_t (*vocab_size)(const void *);
    bool (*ends_generation)(const void *, int32_t);
    int32_t (*width)(const void *);
    int32_t (*tokenize)(const void *, const char *, int32_t, int32_t *, int32_t, bool, bool);
    int32_t (*decode)(void *, struct llama_tokens);
    float *(*logits)(void *, int32_t);
    float *(*hidden)(void *, int32_t);
    void *(*memory)(const void *);
    bool (*memory_remove)(void *, int32_t, int32_t, int32_t);
    size_t (*state_size)(void *, int32_t);
    size_t (*state_copy)(void *, void *, size_t, int32_t);
    size_t (*state_restore)(void *, const void *, size_t, int32_t);
    void *(*grammar_create)(const void *, const char *, const char *);
    void (*sampler_apply)(void *, struct llama_candidates *);
    void (*sampler_accept)(void *, int32_t);
    void (*sampler_free)(void *);
};

const struct llama_library *llama_library_open(struct buf *error);

#endif
