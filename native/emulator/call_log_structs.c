/* call_log_structs.c: the interface's structs as members of a line, every field under its C name. */

#include <stdio.h>

#include "call_log.h"

static void log_extend(struct call_log *log, const RKLLMExtendParam *extend) {
    call_log_open(log, "extend_param");
    call_log_number(log, "base_domain_id", extend->base_domain_id);
    call_log_number(log, "embed_flash", extend->embed_flash);
    call_log_number(log, "enabled_cpus_num", extend->enabled_cpus_num);
    call_log_number(log, "enabled_cpus_mask", extend->enabled_cpus_mask);
#if RKLLM_ABI >= 121
    call_log_number(log, "n_batch", extend->n_batch);
    call_log_number(log, "use_cross_attn", extend->use_cross_attn);
#endif
    call_log_close(log);
}

/* Adds "param"; null for NULL. */
void call_log_param(struct call_log *log, const RKLLMParam *param) {
    if (!param) {
        call_log_null(log, "param");
        return;
    }
    call_log_open(log, "param");
    call_log_text(log, "model_path", param->model_path);
    call_log_number(log, "max_context_len", param->max_context_len);
    call_log_number(log, "max_new_tokens", param->max_new_tokens);
    call_log_number(log, "top_k", param->top_k);
    call_log_number(log, "n_keep", param->n_keep);
    call_log_number(log, "top_p", param->top_p);
    call_log_number(log, "temperature", param->temperature);
    call_log_number(log, "repeat_penalty", param->repeat_penalty);
    call_log_number(log, "frequency_penalty", param->frequency_penalty);
    call_log_number(log, "presence_penalty", param->presence_penalty);
    call_log_number(log, "mirostat", param->mirostat);
    call_log_number(log, "mirostat_tau", param->mirostat_tau);
    call_log_number(log, "mirostat_eta", param->mirostat_eta);
    call_log_bool(log, "skip_special_token", param->skip_special_token);
#if RKLLM_ABI >= 130
    call_log_bool(log, "ignore_eos_token", param->ignore_eos_token);
#endif
    call_log_bool(log, "is_async", param->is_async);
#if RKLLM_ABI < 130
    call_log_text(log, "img_start", param->img_start);
    call_log_text(log, "img_end", param->img_end);
    call_log_text(log, "img_content", param->img_content);
#endif
    log_extend(log, &param->extend_param);
    call_log_close(log);
}

static void log_multimodal(struct call_log *log, const RKLLMMultiModalInput *input) {
    call_log_open(log, "multimodal_input");
    call_log_text(log, "prompt", input->prompt);
#if RKLLM_ABI >= 130
    call_log_given(log, "image_embed", input->image.image_embed);
    call_log_number(log, "n_image_tokens", (double)input->image.n_image_tokens);
    call_log_number(log, "n_image", (double)input->image.n_image);
    call_log_text(log, "image_start", input->image.image_start);
    call_log_text(log, "image_end", input->image.image_end);
    call_log_text(log, "image_content", input->image.image_content);
    call_log_number(log, "image_width", (double)input->image.image_width);
    call_log_number(log, "image_height", (double)input->image.image_height);
    call_log_given(log, "video_embed", input->video.video_embed);
    call_log_number(log, "n_frame_tokens", (double)input->video.n_frame_tokens);
    call_log_number(log, "n_frame_per_video", (double)input->video.n_frame_per_video);
    call_log_number(log, "n_video", (double)input->video.n_video);
    call_log_text(log, "video_start", input->video.video_start);
    call_log_text(log, "video_end", input->video.video_end);
    call_log_text(log, "video_content", input->video.video_content);
    call_log_number(log, "frame_width", (double)input->video.frame_width);
    call_log_number(log, "frame_height", (double)input->video.frame_height);
#if RKLLM_ABI >= 131
    call_log_given(log, "audio_embed", input->audio.audio_embed);
    call_log_number(log, "n_audio_tokens", (double)input->audio.n_audio_tokens);
    call_log_number(log, "n_audio", (double)input->audio.n_audio);
    call_log_text(log, "audio_start", input->audio.audio_start);
    call_log_text(log, "audio_end", input->audio.audio_end);
    call_log_text(log, "audio_content", input->audio.audio_content);
#endif
#else
    call_log_given(log, "image_embed", input->image_embed);
    call_log_number(log, "n_image_tokens", (double)input->n_image_tokens);
#if RKLLM_ABI >= 121
    call_log_number(log, "n_image", (double)input->n_image);
    call_log_number(log, "image_width", (double)input->image_width);
    call_log_number(log, "image_height", (double)input->image_height);
#endif
#endif
    call_log_close(log);
}

/* Adds one input. Of the union only the member that input_type names is read. */
static void log_input(struct call_log *log, const char *key, const RKLLMInput *input) {
    call_log_open(log, key);
#if RKLLM_ABI >= 121
    call_log_text(log, "role", input->role);
    call_log_bool(log, "enable_thinking", input->enable_thinking);
#endif
    call_log_number(log, "input_type", (double)input->input_type);
    switch (input->input_type) {
    case RKLLM_INPUT_PROMPT: call_log_text(log, "prompt_input", input->prompt_input); break;
    case RKLLM_INPUT_TOKEN:
        call_log_ids(log, "input_ids", input->token_input.input_ids, input->token_input.n_tokens);
        call_log_number(log, "n_tokens", (double)input->token_input.n_tokens);
        break;
    case RKLLM_INPUT_EMBED:
        call_log_given(log, "embed", input->embed_input.embed);
        call_log_number(log, "n_tokens", (double)input->embed_input.n_tokens);
        break;
    case RKLLM_INPUT_MULTIMODAL: log_multimodal(log, &input->multimodal_input); break;
    }
    call_log_close(log);
}

/* Adds "input", null for NULL; of a batch also "input_1" and so on. */
void call_log_inputs(struct call_log *log, const RKLLMInput *inputs, int count) {
    char key[24] = "input";
    if (!log->path) return;
    if (!inputs) {
        call_log_null(log, key);
        return;
    }
    for (int i = 0; i < count; i++) {
        if (i) snprintf(key, sizeof key, "input_%d", i);
        log_input(log, key, &inputs[i]);
    }
}

#if RKLLM_ABI >= 130
static void log_sampling(struct call_log *log, const RKLLMSamplingParam *sampling) {
    if (!sampling) {
        call_log_null(log, "sampling_params");
        return;
    }
    call_log_open(log, "sampling_params");
    call_log_number(log, "top_k", sampling->top_k);
    call_log_number(log, "top_p", sampling->top_p);
    call_log_number(log, "temperature", sampling->temperature);
    call_log_number(log, "repeat_penalty", sampling->repeat_penalty);
    call_log_number(log, "frequency_penalty", sampling->frequency_penalty);
    call_log_number(log, "presence_penalty", sampling->presence_penalty);
    call_log_number(log, "mirostat", sampling->mirostat);
    call_log_number(log, "mirostat_tau", sampling->mirostat_tau);
    call_log_number(log, "mirostat_eta", sampling->mirostat_eta);
    call_log_close(log);
}
#endif

/* Adds "infer"; null for NULL. */
void call_log_infer(struct call_log *log, const RKLLMInferParam *infer) {
    if (!log->path) return;
    if (!infer) {
        call_log_null(log, "infer");
        return;
    }
    call_log_open(log, "infer");
    call_log_number(log, "mode", (double)infer->mode);
    if (infer->lora_params)
        call_log_text(log, "lora_adapter_name", infer->lora_params->lora_adapter_name);
    else
        call_log_null(log, "lora_params");
    if (infer->prompt_cache_params) {
        call_log_open(log, "prompt_cache_params");
        call_log_number(log, "save_prompt_cache", infer->prompt_cache_params->save_prompt_cache);
        call_log_text(log, "prompt_cache_path", infer->prompt_cache_params->prompt_cache_path);
        call_log_close(log);
    } else {
        call_log_null(log, "prompt_cache_params");
    }
#if RKLLM_ABI >= 130
    log_sampling(log, infer->sampling_params);
#endif
    call_log_number(log, "keep_history", infer->keep_history);
#if RKLLM_ABI >= 130
    call_log_number(log, "max_new_tokens", infer->max_new_tokens);
#endif
    call_log_close(log);
}
