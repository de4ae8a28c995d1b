/* llm_demo.c: a command-line chat in the style of the programs people write for librkllmrt: one handle, text input,
 * tokens printed from the callback, figures at the end. It knows the interface and nothing of the emulator.
 *
 *   llm_demo MODEL MAX_NEW_TOKENS MAX_CONTEXT_LEN < lines
 *
 * The line "clear" empties the cache but for the system prompt, "exit" ends. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rkllm_abi.h"

static LLMHandle handle;

#if RKLLM_ABI >= 121
static int on_result(RKLLMResult *result, void *userdata, LLMCallState state) {
#else
static void on_result(RKLLMResult *result, void *userdata, LLMCallState state) {
#endif
    (void)userdata;
    switch (state) {
    case RKLLM_RUN_NORMAL:
        printf("%s", result->text);
        fflush(stdout);
        break;
    case RKLLM_RUN_FINISH: printf("\n"); break;
    case RKLLM_RUN_ERROR: printf("run error\n"); break;
    case RKLLM_RUN_WAITING: break;
    }
#if RKLLM_ABI >= 121
    return 0;
#endif
}

/* Opens the model the way the family wants its callback. */
static int open_model(RKLLMParam *param) {
#if RKLLM_ABI >= 130
    RKLLMCallback callback;
    memset(&callback, 0, sizeof callback);
    callback.result_callback = on_result;
    return rkllm_init(&handle, param, &callback);
#else
    return rkllm_init(&handle, param, on_result);
#endif
}

/* Asks one question and lets the callback print the answer. */
static int ask(const char *question) {
    RKLLMInput input;
    RKLLMInferParam infer;
    memset(&input, 0, sizeof input);
    memset(&infer, 0, sizeof infer);
    infer.mode = RKLLM_INFER_GENERATE;
    infer.keep_history = 0;
    input.input_type = RKLLM_INPUT_PROMPT;
    input.prompt_input = question;
#if RKLLM_ABI >= 121
    input.role = "user";
#endif
    return rkllm_run(handle, &input, &infer, NULL);
}

static int clear(void) {
#if RKLLM_ABI >= 121
    return rkllm_clear_kv_cache(handle, 1, NULL, NULL);
#else
    return rkllm_clear_kv_cache(handle, 1);
#endif
}

int main(int argc, char **argv) {
    char line[1024];
    if (argc < 4) {
        fprintf(stderr, "usage: %s MODEL MAX_NEW_TOKENS MAX_CONTEXT_LEN\n", argv[0]);
        return 1;
    }
    RKLLMParam param = rkllm_createDefaultParam();
    param.model_path = argv[1];
    param.max_new_tokens = atoi(argv[2]);
    param.max_context_len = atoi(argv[3]);
    param.skip_special_token = true;
    param.top_k = 1;
    param.top_p = 0.95f;
    param.extend_param.base_domain_id = 0;
    param.extend_param.embed_flash = 1;
    if (open_model(&param) != 0) {
        printf("rkllm init failed\n");
        return 1;
    }
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (strcmp(line, "exit") == 0) break;
        if (strcmp(line, "clear") == 0) {
            if (clear() != 0) printf("clear failed\n");
            continue;
        }
        printf("robot: ");
        if (ask(line) != 0) printf("run failed\n");
    }
    return rkllm_destroy(handle);
}
