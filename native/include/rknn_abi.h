/* rknn_abi.h: the part of the interface of librknnrt.so that programs with a vision encoder use, in own declarations.
 *
 * Layouts are those of release 2.3.2 on LP64; rkllm_mcp/runtime/abi/rknn.json has the same as data, and the tests
 * compare both. All functions return 0 or one of the codes below. */

#ifndef RKNN_ABI_H
#define RKNN_ABI_H

#include <stdint.h>

typedef uint64_t rknn_context;

enum {
    RKNN_SUCC = 0,
    RKNN_ERR_FAIL = -1,
    RKNN_ERR_MALLOC_FAIL = -4,
    RKNN_ERR_PARAM_INVALID = -5,
    RKNN_ERR_MODEL_INVALID = -6,
    RKNN_ERR_CTX_INVALID = -7,
    RKNN_ERR_INPUT_INVALID = -8,
    RKNN_ERR_OUTPUT_INVALID = -9,
    RKNN_ERR_TARGET_PLATFORM_UNMATCH = -13
};

enum {
    RKNN_QUERY_IN_OUT_NUM = 0,
    RKNN_QUERY_INPUT_ATTR = 1,
    RKNN_QUERY_OUTPUT_ATTR = 2,
    RKNN_QUERY_PERF_RUN = 4,
    RKNN_QUERY_SDK_VERSION = 5,
    RKNN_QUERY_MEM_SIZE = 6
};

enum { RKNN_TENSOR_FLOAT32 = 0, RKNN_TENSOR_FLOAT16 = 1, RKNN_TENSOR_UINT8 = 3 };
enum { RKNN_TENSOR_NCHW = 0, RKNN_TENSOR_NHWC = 1, RKNN_TENSOR_UNDEFINED = 3 };

typedef struct {
    uint32_t n_input, n_output;
} rknn_input_output_num;

typedef struct {
    uint32_t index, n_dims, dims[16];
    char name[256];
    uint32_t n_elems, size;
    int32_t fmt, type, qnt_type;
    int8_t fl;
    int32_t zp;
    float scale;
    uint32_t w_stride, size_with_stride;
    uint8_t pass_through;
    uint32_t h_stride;
} rknn_tensor_attr;

typedef struct {
    uint32_t index;
    void *buf;
    uint32_t size;
    uint8_t pass_through;
    int32_t type, fmt;
} rknn_input;

typedef struct {
    uint8_t want_float, is_prealloc;
    uint32_t index;
    void *buf;
    uint32_t size;
} rknn_output;

typedef struct {
    char api_version[256], drv_version[256];
} rknn_sdk_version;

typedef struct {
    uint32_t total_weight_size, total_internal_size;
    uint64_t total_dma_allocated_size;
    uint32_t total_sram_size, free_sram_size, reserved[10];
} rknn_mem_size;

typedef struct {
    int64_t run_duration; /* microseconds */
} rknn_perf_run;

int rknn_init(rknn_context *context, void *model, uint32_t size, uint32_t flag, void *extend);
int rknn_dup_context(rknn_context *from, rknn_context *to);
int rknn_destroy(rknn_context context);
int rknn_query(rknn_context context, int32_t command, void *info, uint32_t size);
int rknn_set_core_mask(rknn_context context, int32_t mask);
int rknn_inputs_set(rknn_context context, uint32_t count, rknn_input inputs[]);
int rknn_run(rknn_context context, void *extend);
int rknn_wait(rknn_context context, void *extend);
int rknn_outputs_get(rknn_context context, uint32_t count, rknn_output outputs[], void *extend);
int rknn_outputs_release(rknn_context context, uint32_t count, rknn_output outputs[]);

#endif
