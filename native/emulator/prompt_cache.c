/* prompt_cache.c: files that carry the tokens of a prompt from one process to the next.
 *
 * The vendor's format is private, so this one is text: a line that names it, the fingerprint of the script it
 * belongs to, the number of tokens, and the tokens. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "console.h"
#include "model.h"
#include "source_file.h"

#define CACHE_MAGIC "RKLLM-EMULATOR-PROMPT-CACHE 1"

/* Writes the prompt to path, replacing what was there. False, with a line printed, when that fails. */
bool prompt_cache_save(const struct model *m, const char *path, const struct ids *prompt) {
    FILE *file = fopen(path, "wbe");
    if (!file) {
        console_line('E', "failed to save prompt cache to %s: %s", path, strerror(errno));
        return false;
    }
    fprintf(file, "%s\n%016" PRIx64 "\n%zu\n", CACHE_MAGIC, m->script->fingerprint, prompt->len);
    for (size_t i = 0; i < prompt->len; i++) fprintf(file, "%d\n", prompt->data[i]);
    bool good = !ferror(file);
    good = fclose(file) == 0 && good;
    if (good)
        console_line('I', "saved prompt cache to %s", path);
    else
        console_line('E', "failed to save prompt cache to %s", path);
    return good;
}

/* Reads the tokens behind the head of a cache file; false when their number is not the one announced or one of
 * them is not in the vocabulary. */
static bool read_tokens(const struct model *m, char *at, struct ids *out) {
    char *end;
    size_t announced = strtoul(at, &end, 10);
    while (end != at) {
        at = end;
        long id = strtol(at, &end, 10);
        if (end == at) break;
        if (id < 0 || id > INT32_MAX || !vocabulary_has(m->script->vocabulary, (int32_t)id)) return false;
        ids_put(out, (int32_t)id);
    }
    return announced > 0 && out->len == announced && out->len <= m->kv.capacity;
}

/* Takes the content of a cache file apart into tokens; false, with a line printed, when it does not fit. */
static bool parse(const struct model *m, const char *path, struct buf *text, struct ids *out) {
    size_t magic_len = strlen(CACHE_MAGIC);
    if (!text->len) {
        console_line('E', "prompt cache file '%s' is empty", path);
        return false;
    }
    if (strncmp(text->data, CACHE_MAGIC "\n", magic_len + 1) != 0) {
        console_line('E', "failed to load prompt cache from %s", path);
        return false;
    }
    char *end;
    uint64_t fingerprint = strtoull(text->data + magic_len + 1, &end, 16);
    if (fingerprint != m->script->fingerprint) {
        console_line('E', "the prompt dose not match the current model[%s]", m->script->path);
        return false;
    }
    if (read_tokens(m, end, out)) return true;
    console_line('E', "failed to load prompt cache from %s", path);
    return false;
}

/* Replaces the KV cache by the tokens of a file; the next run reuses what its prompt has in common with them.
 * False, with a line printed, when the file cannot be used; the cache is then as before. The lock is held. */
bool prompt_cache_load(struct model *m, const char *path) {
    struct buf text = {0};
    struct ids tokens = {0};
    bool good = path && source_file_read(path, &text);
    if (!good)
        console_line('E', "prompt cache file '%s' does not exist", path ? path : "(null)");
    else
        console_line('I', "load prompt cache from '%s'", path);
    good = good && parse(m, path, &text, &tokens);
    if (good) {
        model_forget(m, 0);
        ids_append(&m->kv.ids, tokens.data, tokens.len);
        console_line('I', "loaded a prompt cache with prompt size of %zu tokens", tokens.len);
    }
    ids_free(&tokens);
    buf_free(&text);
    return good;
}
