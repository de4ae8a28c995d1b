/* media.c: images and videos in a text. Every <image> (and, since 1.3.0, <video>) of the prompt becomes the model's
 * mark of a beginning, one token for every row that the vision encoder made, and the mark of an end.
 *
 * The rows are numbers of another model; here they only become their own ids, so that the same image is the same
 * tokens and matches the cache. The marks are text: control tokens when the vocabulary has them.
 *
 * Audio (since 1.3.1) is refused: nobody has said what represents it in a prompt. */

#include <stdlib.h>
#include <string.h>

#include "console.h"
#include "model.h"
#include "values.h"

/* All images, or all videos, of an input; count is 0 when none exist. */
struct media {
    const char *tag;
    const float *rows;
    size_t rows_each, count;
    const char *start, *end;
};

/* Returns the images of an input, with the marks of the input (1.3.0) or of the model. */
static struct media images_of(const RKLLMMultiModalInput *input, const struct image_marks *marks) {
#if RKLLM_ABI >= 130
    (void)marks;
    return (struct media){"<image>",           input->image.image_embed, input->image.n_image_tokens,
                          input->image.n_image, input->image.image_start, input->image.image_end};
#elif RKLLM_ABI >= 121
    return (struct media){"<image>",      input->image_embed, input->n_image_tokens,
                          input->n_image, marks->start,       marks->end};
#else
    return (struct media){"<image>", input->image_embed, input->n_image_tokens, 1, marks->start, marks->end};
#endif
}

/* Returns the videos of an input: each is all its frames in a row. */
static struct media videos_of(const RKLLMMultiModalInput *input) {
#if RKLLM_ABI >= 130
    return (struct media){"<video>",
                          input->video.video_embed,
                          input->video.n_frame_tokens * input->video.n_frame_per_video,
                          input->video.n_video,
                          input->video.video_start,
                          input->video.video_end};
#else
    (void)input;
    return (struct media){.tag = "<video>"};
#endif
}

/* Counts how often a tag is in the text. */
static size_t count_tags(const char *text, const char *tag) {
    size_t count = 0;
    for (const char *at = strstr(text, tag); at; at = strstr(at + 1, tag)) count++;
    return count;
}

/* Checks one kind of media against the text. */
static bool check_media(const char *prompt, const struct media *media) {
    size_t tags = count_tags(prompt, media->tag);
    if (tags != media->count) {
        console_line('E', "the prompt has %zu %s tags, but %zu are given!", tags, media->tag, media->count);
        return false;
    }
    if (!media->count) return true;
    if (!media->rows) console_line('E', "the embedding of %s is NULL!", media->tag);
    if (!media->rows_each) console_line('E', "the number of tokens of %s is 0!", media->tag);
    return media->rows && media->rows_each;
}

/* Whether an input holds audio. A program that was built for 1.3.0, which is reported to run on 1.3.1, passes a struct
 * without these fields: what lies after it is not a count that a person would mean. */
static bool has_audio(const RKLLMMultiModalInput *input) {
#if RKLLM_ABI >= 131
    return input->audio.audio_embed && input->audio.n_audio && input->audio.n_audio <= 64;
#else
    (void)input;
    return false;
#endif
}

/* Checks the size of the pictures of a model that numbers their tokens by line and column (M-RoPE). */
static bool check_size(const struct model *m, const RKLLMMultiModalInput *input, size_t tokens) {
#if RKLLM_ABI >= 130
    size_t width = input->image.image_width, height = input->image.image_height;
#elif RKLLM_ABI >= 121
    size_t width = input->image_width, height = input->image_height;
#else
    size_t width = 0, height = 0;
    (void)input;
    return true;
#endif
    size_t patch = (size_t)m->script->picture_patch;
    if (!patch || (width / patch) * (height / patch) == tokens) return true;
    console_line('E', "patch_h[%zu] * patch_w[%zu] != n_image_token[%zu]!", height / patch, width / patch, tokens);
    return false;
}

/* Checks tags, counts and pointers; false, with a line printed, when they do not go together. */
bool media_check(const struct model *m, const RKLLMMultiModalInput *input) {
    struct image_marks none = {NULL, NULL};
    struct media images = images_of(input, &none), videos = videos_of(input);
    if (has_audio(input)) {
        console_line('E', "the emulator takes no audio: what stands for it in a prompt is not known");
        return false;
    }
    bool tagged = input->prompt && strstr(input->prompt, images.tag);
    if (RKLLM_ABI >= 130) tagged = tagged || (input->prompt && strstr(input->prompt, videos.tag));
    if (!tagged) {
        console_line('E', "multimodal input must contain the <image> tag, for plain text input, "
                          "please use prompt_input");
        return false;
    }
    if (images.count && !check_size(m, input, images.rows_each)) return false;
    return check_media(input->prompt, &images) && (RKLLM_ABI < 130 || check_media(input->prompt, &videos));
}

/* Loses memory as 1.3.0 does with each picture (#529): it is never freed, and the kernel counts what was written to. */
static void leak(const struct model *m) {
    static void *volatile lost;
    size_t bytes = (size_t)m->faults.leak_bytes;
    lost = bytes ? malloc(bytes) : NULL;
    if (lost) memset(lost, 1, bytes);
}

/* Appends the next image or video, and steps over its rows. */
static bool put_media(const struct model *m, struct media *media, struct sequence *entry, struct ids *out) {
    size_t outputs = (size_t)m->script->picture_outputs, width = (size_t)m->script->hidden, first;
    const float *rows = media->rows;
    const char *start = media->start ? media->start : "", *end = media->end ? media->end : "";
    leak(m);
    if (!host_encode(m, start, strlen(start), out)) return false;
    first = out->len;
    for (size_t i = 0; i < media->rows_each; i++, media->rows += width * outputs)
        ids_put(out, outputs == 1 ? input_row(m, media->rows)
                                  : values_of_picture(media->rows, width * outputs, 0));
    pictures_put(m->pictures, out->data + first, media->rows_each, rows, outputs, width);
    entry->pictures += media->rows_each;
    return host_encode(m, end, strlen(end), out);
}

/* Appends the ids of a checked input: its text in the template, its media at their tags. */
bool media_read(const struct model *m, const RKLLMInput *input, bool continues, struct buf *text,
                struct sequence *entry, struct ids *out) {
    const RKLLMMultiModalInput *given = &input->multimodal_input;
    struct media images = images_of(given, &m->settings.marks), videos = videos_of(given);
    chat_render(m, input, given->prompt, continues, text);
    const char *at = buf_text(text);
    for (bool good = true; good;) {
        const char *image = strstr(at, images.tag), *video = videos.count ? strstr(at, videos.tag) : NULL;
        struct media *next = video && (!image || video < image) ? &videos : &images;
        const char *tag = next == &videos ? video : image;
        size_t len = tag && next->count ? (size_t)(tag - at) : strlen(at);
        good = host_encode(m, at, len, out);
        if (!good || !at[len]) return good;
        next->count--;
        good = put_media(m, next, entry, out);
        at += len + strlen(next->tag);
    }
    return false;
}
