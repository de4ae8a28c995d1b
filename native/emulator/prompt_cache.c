/* prompt_cache.c: files that carry the tokens of a prompt from one process to the next.
 *
 * The vendor's format is private, so this one is text: a line that names it, the fingerprint of the script it
 * belongs to, its context length, the number of tokens, their sum, and the tokens. It names the runtime's version as
 * well, because no release promises to read the files of another. After a line "state" follows, for a model with
 * weights, what llama.cpp's cache held. */

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "console.h"
#include "model.h"
#include "source_file.h"

#define CACHE_MAGIC "RKLLM-EMULATOR-PROMPT-CACHE 2"
#define STATE "state\n"

/* How the vendor's files were reported to begin and to end (1.2.3, 1.3.1): the words 0, 8 and the number of tokens,
 * their ids, records of the KV cache, and a footer. */
#define REPORTED_WORDS 3
#define REPORTED_FOOTER 16

/* The file that an aborted run of this process wrote, where loading that crashes, under whatever name. */
static struct stat trap;

/* Returns a number that changes when a file, or the order of its tokens, does. */
static uint64_t sum_of(const struct ids *ids) {
    uint64_t sum = 1469598103934665603ULL;
    for (size_t i = 0; i < ids->len; i++) sum = (sum ^ (uint32_t)ids->data[i]) * 1099511628211ULL;
    return sum;
}

/* Returns the number that a model's files belong to: that of its script and its weights. */
static uint64_t fingerprint_of(const struct model *m) {
    return m->script->fingerprint ^ (m->weights ? weights_identity(m->weights) : 0);
}

/* Prints why such files are missing for this model; false when they exist. */
static bool is_impossible(const struct model *m, const char *verb) {
    if (m->script->cache_files == CACHE_FILES_WORK) return false;
    console_line('W', "this model cannot %s a prompt cache!", verb);
    return true;
}

static bool is_trap(const char *path) {
    struct stat file;
    return trap.st_ino && stat(path, &file) == 0 && file.st_dev == trap.st_dev && file.st_ino == trap.st_ino;
}

/* Writes the prompt to path, replacing what was there. False, with a line printed, when that fails. */
bool prompt_cache_save(const struct model *m, const char *path, const struct ids *prompt) {
    if (is_impossible(m, "save")) return false;
    FILE *file = fopen(path, "wbe");
    if (!file) {
        console_line('E', "failed to save prompt cache to %s: %s", path, strerror(errno));
        return false;
    }
    if (is_trap(path)) trap = (struct stat){0};
    if (m->faults.reported_cache_file) {
        uint32_t words[REPORTED_WORDS] = {0, 8, (uint32_t)prompt->len};
        fwrite(words, sizeof *words, REPORTED_WORDS, file);
        fwrite(prompt->data, sizeof *prompt->data, prompt->len, file);
    }
    fprintf(file, "%s\n%s\n%016" PRIx64 "\n%d\n%zu\n%016" PRIx64 "\n", CACHE_MAGIC, EMULATED_VERSION,
            fingerprint_of(m), m->settings.max_context, prompt->len, sum_of(prompt));
    for (size_t i = 0; i < prompt->len; i++) fprintf(file, "%d\n", prompt->data[i]);
    if (m->weights) {
        struct buf state = {0};
        weights_save(m->weights, &state);
        fputs(STATE, file);
        fwrite(state.data, 1, state.len, file);
        buf_free(&state);
    }
    if (m->faults.reported_cache_file) fwrite("\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0", 1, REPORTED_FOOTER, file);
    bool good = !ferror(file);
    good = fclose(file) == 0 && good;
    if (good)
        console_line('I', "saved prompt cache to %s", path);
    else
        console_line('E', "failed to save prompt cache to %s", path);
    return good;
}

/* Removes what the reported layout has around a file's content. */
static void unwrap(struct buf *text) {
    uint32_t words[REPORTED_WORDS];
    if (text->len < sizeof words) return;
    memcpy(words, text->data, sizeof words);
    size_t front = sizeof words + (size_t)words[2] * sizeof(int32_t);
    if (words[0] != 0 || words[1] != 8 || front + REPORTED_FOOTER > text->len) return;
    text->len -= front + REPORTED_FOOTER;
    memmove(text->data, text->data + front, text->len);
    text->data[text->len] = 0;
}

/* Makes the load of a file end this process, until it is written anew. */
void prompt_cache_trap(const char *path) {
    if (stat(path, &trap) != 0) trap = (struct stat){0};
}

/* Reads the tokens at *content, after the head of a cache file, and moves it after them; false when they are not the
 * announced ones. */
static bool read_tokens(const struct model *m, char **content, struct ids *out) {
    char *at = *content, *end;
    size_t announced = strtoul(at, &end, 10);
    uint64_t sum = strtoull(end, &end, 16);
    while (end != at) {
        at = end;
        long id = strtol(at, &end, 10);
        if (end == at) break;
        /* Negative ids are pieces of pictures, which no vocabulary has. */
        if (id > INT32_MAX || id < INT32_MIN || (id >= 0 && !vocabulary_has(m->script->vocabulary, (int32_t)id)))
            return false;
        ids_put(out, (int32_t)id);
    }
    *content = at;
    return announced > 0 && out->len == announced && sum == sum_of(out);
}

/* Gives the weights, where the model has some, the state at the end of a cache file; false when they do not take it. */
static bool read_state(const struct model *m, const struct buf *text, const char *at, const struct ids *tokens) {
    static const char mark[] = "\n" STATE;
    if (!m->weights) return true;
    const char *state = at + sizeof mark - 1, *end = text->data + text->len;
    return state <= end && strncmp(at, mark, sizeof mark - 1) == 0 &&
           weights_load(m->weights, tokens, state, (size_t)(end - state));
}

/* Takes the content of a cache file apart into tokens, and into a state for weights; false, with a line printed, when it
 * does not fit. */
static bool parse(const struct model *m, const char *path, struct buf *text, struct ids *out) {
    static const char head[] = CACHE_MAGIC "\n" EMULATED_VERSION "\n";
    unwrap(text);
    if (!text->len) {
        console_line('E', "prompt cache file '%s' is empty", path);
        return false;
    }
    if (strncmp(text->data, head, sizeof head - 1) != 0) {
        console_line('E', "failed to load prompt cache from %s", path);
        return false;
    }
    char *end;
    uint64_t fingerprint = strtoull(text->data + sizeof head - 1, &end, 16);
    long context = strtol(end, &end, 10);
    if (fingerprint != fingerprint_of(m) || context != m->settings.max_context) {
        console_line('E', "the prompt dose not match the current model[%s]", m->script->path);
        return false;
    }
    if (read_tokens(m, &end, out) && read_state(m, text, end, out)) return true;
    console_line('E', "failed to load prompt cache from %s", path);
    return false;
}

/* Replaces the KV cache by the tokens of a file and remembers them until the file is released: runs reuse what their
 * prompt has in common with them. False, with a line printed, when the file cannot be used; the cache is then as
 * before. The lock is held. */
bool prompt_cache_load(struct model *m, const char *path) {
    struct buf text = {0};
    struct ids tokens = {0};
    if (is_impossible(m, "load")) return m->script->cache_files == CACHE_FILES_IGNORED;
    if (path && is_trap(path)) fault_die(SIGSEGV);
    bool good = path && source_file_read(path, &text);
    if (!good)
        console_line('E', "prompt cache file '%s' does not exist", path ? path : "(null)");
    else
        console_line('I', "load prompt cache from '%s'", path);
    good = good && parse(m, path, &text, &tokens);
    if (good) {
        model_forget(m, false);
        m->cache_lora = -1;
        ids_append(&m->batch[0].kv.ids, tokens.data, tokens.len);
        ids_append(&m->loaded, tokens.data, tokens.len);
        console_line('I', "loaded a prompt cache with prompt size of %zu tokens", tokens.len);
    }
    ids_free(&tokens);
    buf_free(&text);
    return good;
}
