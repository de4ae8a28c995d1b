/* host.c: the callbacks of 1.3.0 for models that were exported without a tokenizer or without an embedding table.
 *
 * Older families have no such callbacks; a model that lacks one of the two cannot be opened there. */

#include <stdlib.h>
#include <string.h>

#include "console.h"
#include "model.h"

/* True when the host can do what the model cannot; false, with the runtime's line, when rkllm_init has to fail. */
bool host_check(const struct model *m) {
    bool tokenizer = !m->script->lacks_tokenizer, embedding = !m->script->lacks_embedding;
#if RKLLM_ABI >= 130
    tokenizer = tokenizer || m->host.tokenizer;
    embedding = embedding || m->host.embed;
#endif
    if (!tokenizer)
        console_line('E', "Tokenizer is unavailable: model has no internal tokenizer and no external "
                          "tokenizer_callback provided.");
    if (!embedding) console_line('E', "Model has no embedding layer and no embed callback provided.");
    return tokenizer && embedding;
}

#if RKLLM_ABI >= 130
/* Has the host cut text into ids; false, with a line printed, when it reports an error or too many. */
static bool encode_there(const struct model *m, const char *text, size_t len, struct ids *out) {
    /* No tokenizer makes more tokens than bytes, but some put one in front. */
    int32_t room = (int32_t)len + 16;
    int32_t *ids = mem_alloc((size_t)room * sizeof *ids);
    char *copy = mem_string_n(text, len);
    int count = m->host.tokenizer(m->host.tokenizer_userdata, copy, (int32_t)len, ids, room);
    bool good = count >= 0 && count <= room;
    for (int i = 0; i < count && good; i++) good = vocabulary_has(m->script->vocabulary, ids[i]);
    if (good)
        ids_append(out, ids, (size_t)count);
    else
        console_line('E', "the tokenizer callback failed: %d", count);
    free(copy);
    free(ids);
    return good;
}
#endif

/* Appends the ids of len bytes of text, from the model or from the host. */
bool host_encode(const struct model *m, const char *text, size_t len, struct ids *out) {
#if RKLLM_ABI >= 130
    if (m->script->lacks_tokenizer) return !len || encode_there(m, text, len, out);
#endif
    if (m->weights) return weights_encode(m->weights, text, len, out);
    vocabulary_encode(m->script->vocabulary, text, len, NULL, out);
    return true;
}

/* Asks the host for the embeddings of ids where the model has none; false, with a line, when it reports an error. */
bool host_embed(const struct model *m, const int32_t *ids, size_t count) {
#if RKLLM_ABI >= 130
    if (!m->script->lacks_embedding || !count) return true;
    uint64_t bytes = count * (uint64_t)m->script->hidden * sizeof(float);
    void *rows = mem_alloc(bytes);
    int32_t *copy = mem_alloc(count * sizeof *copy);
    memcpy(copy, ids, count * sizeof *copy);
    int result = m->host.embed(m->host.embed_userdata, copy, count, rows, bytes);
    free(copy);
    free(rows);
    if (result != 0) console_line('E', "the embed callback failed: %d", result);
    return result == 0;
#else
    (void)m, (void)ids, (void)count;
    return true;
#endif
}
