/* layout.c: prints, as one JSON object, the size of every struct of include/rkllm_abi.h and the offset and size
 * of every member as this compiler lays them out for the RKLLM_ABI it was compiled with.
 *
 *   {"abi": 130, "structs": {"RKLLMParam": {"size": 184, "fields": {"model_path": [0, 8], ...}}, ...}}
 *
 * Nested members are spelled with a dot ("image.n_image"); the members of the union in RKLLMInput share an offset.
 * A Python test compares these figures with ctypes. */

#include <stddef.h>
#include <stdio.h>

#include "rkllm_abi.h"

static int open_structs;
static int open_fields;

/* Starts the object of one struct; the comma before it is written when another came first. */
static void begin_struct(const char *name, size_t size) {
    printf("%s\n  \"%s\": {\"size\": %zu, \"fields\": {", open_structs++ ? "," : "", name, size);
    open_fields = 0;
}

/* Writes one member as [offset, size]. */
static void write_field(const char *name, size_t offset, size_t size) {
    printf("%s\"%s\": [%zu, %zu]", open_fields++ ? ", " : "", name, offset, size);
}

/* Ends the object of one struct. */
static void end_struct(void) { printf("}}"); }

#define BEGIN(type) begin_struct(#type, sizeof(type))
#define FIELD(type, member) write_field(#member, offsetof(type, member), sizeof(((type *)0)->member))
#define END() end_struct()

/* The structs a caller fills before rkllm_init. */
static void print_init_structs(void) {
    BEGIN(RKLLMExtendParam);
    FIELD(RKLLMExtendParam, base_domain_id);
    FIELD(RKLLMExtendParam, embed_flash);
    FIELD(RKLLMExtendParam, enabled_cpus_num);
    FIELD(RKLLMExtendParam, enabled_cpus_mask);
#if RKLLM_ABI >= 121
    FIELD(RKLLMExtendParam, n_batch);
    FIELD(RKLLMExtendParam, use_cross_attn);
#endif
    FIELD(RKLLMExtendParam, reserved);
    END();
    BEGIN(RKLLMParam);
    FIELD(RKLLMParam, model_path);
    FIELD(RKLLMParam, max_context_len);
    FIELD(RKLLMParam, max_new_tokens);
    FIELD(RKLLMParam, top_k);
    FIELD(RKLLMParam, n_keep);
    FIELD(RKLLMParam, top_p);
    FIELD(RKLLMParam, temperature);
    FIELD(RKLLMParam, repeat_penalty);
    FIELD(RKLLMParam, frequency_penalty);
    FIELD(RKLLMParam, presence_penalty);
    FIELD(RKLLMParam, mirostat);
    FIELD(RKLLMParam, mirostat_tau);
    FIELD(RKLLMParam, mirostat_eta);
    FIELD(RKLLMParam, skip_special_token);
#if RKLLM_ABI >= 130
    FIELD(RKLLMParam, ignore_eos_token);
#endif
    FIELD(RKLLMParam, is_async);
#if RKLLM_ABI < 130
    FIELD(RKLLMParam, img_start);
    FIELD(RKLLMParam, img_end);
    FIELD(RKLLMParam, img_content);
#endif
    FIELD(RKLLMParam, extend_param);
    END();
    BEGIN(RKLLMLoraAdapter);
    FIELD(RKLLMLoraAdapter, lora_adapter_path);
    FIELD(RKLLMLoraAdapter, lora_adapter_name);
    FIELD(RKLLMLoraAdapter, scale);
    END();
}

/* The members of RKLLMMultiModalInput, which every family spells differently. */
static void print_multimodal(void) {
    BEGIN(RKLLMMultiModalInput);
    FIELD(RKLLMMultiModalInput, prompt);
#if RKLLM_ABI >= 130
    FIELD(RKLLMMultiModalInput, image);
    FIELD(RKLLMMultiModalInput, image.image_embed);
    FIELD(RKLLMMultiModalInput, image.n_image_tokens);
    FIELD(RKLLMMultiModalInput, image.n_image);
    FIELD(RKLLMMultiModalInput, image.image_start);
    FIELD(RKLLMMultiModalInput, image.image_end);
    FIELD(RKLLMMultiModalInput, image.image_content);
    FIELD(RKLLMMultiModalInput, image.image_width);
    FIELD(RKLLMMultiModalInput, image.image_height);
    FIELD(RKLLMMultiModalInput, video);
    FIELD(RKLLMMultiModalInput, video.video_embed);
    FIELD(RKLLMMultiModalInput, video.n_frame_tokens);
    FIELD(RKLLMMultiModalInput, video.n_frame_per_video);
    FIELD(RKLLMMultiModalInput, video.n_video);
    FIELD(RKLLMMultiModalInput, video.video_start);
    FIELD(RKLLMMultiModalInput, video.video_end);
    FIELD(RKLLMMultiModalInput, video.video_content);
    FIELD(RKLLMMultiModalInput, video.frame_width);
    FIELD(RKLLMMultiModalInput, video.frame_height);
#if RKLLM_ABI >= 131
    FIELD(RKLLMMultiModalInput, audio);
    FIELD(RKLLMMultiModalInput, audio.audio_embed);
    FIELD(RKLLMMultiModalInput, audio.n_audio_tokens);
    FIELD(RKLLMMultiModalInput, audio.n_audio);
    FIELD(RKLLMMultiModalInput, audio.audio_start);
    FIELD(RKLLMMultiModalInput, audio.audio_end);
    FIELD(RKLLMMultiModalInput, audio.audio_content);
#endif
#else
    FIELD(RKLLMMultiModalInput, image_embed);
    FIELD(RKLLMMultiModalInput, n_image_tokens);
#if RKLLM_ABI >= 121
    FIELD(RKLLMMultiModalInput, n_image);
    FIELD(RKLLMMultiModalInput, image_width);
    FIELD(RKLLMMultiModalInput, image_height);
#endif
#endif
    END();
}

/* The structs a caller fills before rkllm_run. */
static void print_run_structs(void) {
    BEGIN(RKLLMEmbedInput);
    FIELD(RKLLMEmbedInput, embed);
    FIELD(RKLLMEmbedInput, n_tokens);
    END();
    BEGIN(RKLLMTokenInput);
    FIELD(RKLLMTokenInput, input_ids);
    FIELD(RKLLMTokenInput, n_tokens);
    END();
    print_multimodal();
    BEGIN(RKLLMInput);
#if RKLLM_ABI >= 121
    FIELD(RKLLMInput, role);
    FIELD(RKLLMInput, enable_thinking);
#endif
    FIELD(RKLLMInput, input_type);
    FIELD(RKLLMInput, prompt_input);
    FIELD(RKLLMInput, embed_input);
    FIELD(RKLLMInput, token_input);
    FIELD(RKLLMInput, multimodal_input);
    END();
    BEGIN(RKLLMLoraParam);
    FIELD(RKLLMLoraParam, lora_adapter_name);
    END();
    BEGIN(RKLLMPromptCacheParam);
    FIELD(RKLLMPromptCacheParam, save_prompt_cache);
    FIELD(RKLLMPromptCacheParam, prompt_cache_path);
    END();
#if RKLLM_ABI >= 130
    BEGIN(RKLLMSamplingParam);
    FIELD(RKLLMSamplingParam, top_k);
    FIELD(RKLLMSamplingParam, top_p);
    FIELD(RKLLMSamplingParam, temperature);
    FIELD(RKLLMSamplingParam, repeat_penalty);
    FIELD(RKLLMSamplingParam, frequency_penalty);
    FIELD(RKLLMSamplingParam, presence_penalty);
    FIELD(RKLLMSamplingParam, mirostat);
    FIELD(RKLLMSamplingParam, mirostat_tau);
    FIELD(RKLLMSamplingParam, mirostat_eta);
    END();
#endif
    BEGIN(RKLLMInferParam);
    FIELD(RKLLMInferParam, mode);
    FIELD(RKLLMInferParam, lora_params);
    FIELD(RKLLMInferParam, prompt_cache_params);
#if RKLLM_ABI >= 130
    FIELD(RKLLMInferParam, sampling_params);
#endif
    FIELD(RKLLMInferParam, keep_history);
#if RKLLM_ABI >= 130
    FIELD(RKLLMInferParam, max_new_tokens);
#endif
    END();
}

/* The structs the library fills, and those that carry callbacks. */
static void print_result_structs(void) {
    BEGIN(RKLLMResultLastHiddenLayer);
    FIELD(RKLLMResultLastHiddenLayer, hidden_states);
    FIELD(RKLLMResultLastHiddenLayer, embd_size);
    FIELD(RKLLMResultLastHiddenLayer, num_tokens);
    END();
    BEGIN(RKLLMResultLogits);
    FIELD(RKLLMResultLogits, logits);
    FIELD(RKLLMResultLogits, vocab_size);
    FIELD(RKLLMResultLogits, num_tokens);
    END();
#if RKLLM_ABI >= 121
    BEGIN(RKLLMPerfStat);
    FIELD(RKLLMPerfStat, prefill_time_ms);
    FIELD(RKLLMPerfStat, prefill_tokens);
    FIELD(RKLLMPerfStat, generate_time_ms);
    FIELD(RKLLMPerfStat, generate_tokens);
    FIELD(RKLLMPerfStat, memory_usage_mb);
    END();
#endif
    BEGIN(RKLLMResult);
    FIELD(RKLLMResult, text);
    FIELD(RKLLMResult, token_id);
    FIELD(RKLLMResult, last_hidden_layer);
    FIELD(RKLLMResult, logits);
#if RKLLM_ABI >= 121
    FIELD(RKLLMResult, perf);
#endif
    END();
#if RKLLM_ABI >= 121
    BEGIN(RKLLMCrossAttnParam);
    FIELD(RKLLMCrossAttnParam, encoder_k_cache);
    FIELD(RKLLMCrossAttnParam, encoder_v_cache);
    FIELD(RKLLMCrossAttnParam, encoder_mask);
    FIELD(RKLLMCrossAttnParam, encoder_pos);
    FIELD(RKLLMCrossAttnParam, num_tokens);
    END();
#endif
#if RKLLM_ABI >= 130
    BEGIN(RKLLMCallback);
    FIELD(RKLLMCallback, result_callback);
    FIELD(RKLLMCallback, result_userdata);
    FIELD(RKLLMCallback, tokenizer_callback);
    FIELD(RKLLMCallback, tokenizer_userdata);
    FIELD(RKLLMCallback, embed_callback);
    FIELD(RKLLMCallback, embed_userdata);
    END();
#endif
}

int main(void) {
    printf("{\"abi\": %d, \"structs\": {", RKLLM_ABI);
    print_init_structs();
    print_run_structs();
    print_result_structs();
    printf("\n}}\n");
    return 0;
}
