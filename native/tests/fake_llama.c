/* fake_llama.c: as much of libllama as the emulator calls, for tests without weights. Its tokens are those of
 * session.h's BYTES_HEAD and some padding; what it says is "ok" after every newline. $FAKE_LLAMA_LOG gets a line for each decode:
 * sequence, first position, count, and "rows" where embeddings came instead of tokens. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CONTROL = 256, END = 258, SIZE = 300, WIDTH = 8, MOST = 512 };

/* As different from the emulator's idea of it as two releases are. */
struct params {
    uint32_t numbers[4];
    char rest[90];
};

struct batch {
    int32_t count;
    int32_t *ids;
    float *rows;
    int32_t *positions, *sequence_counts, **sequences;
    int8_t *outputs;
};

static float logits[MOST][SIZE], hidden[MOST][WIDTH];
static int32_t last_output;
static bool embeds;
static char model, context;

void ggml_backend_load_all_from_path(const char *folder) { (void)folder; }
void llama_backend_init(void) {}
void llama_log_set(void (*log)(int, const char *, void *), void *user) { (void)log, (void)user; }
struct params llama_model_default_params(void) { return (struct params){{0}, ""}; }
struct params llama_context_default_params(void) { return (struct params){{0}, "filled"}; }

void *llama_model_load_from_file(const char *path, struct params params) {
    FILE *file = fopen(path, "rb");
    (void)params;
    if (!file) return NULL;
    fclose(file);
    return &model;
}

void *llama_init_from_model(void *of, struct params params) {
    return of && strcmp(params.rest, "filled") == 0 && params.numbers[3] ? &context : NULL;
}

void llama_model_free(void *of) { (void)of; }
void llama_free(void *of) { (void)of; }
void llama_set_n_threads(void *of, int32_t threads, int32_t batch_threads) { (void)of, (void)threads, (void)batch_threads; }
void llama_set_embeddings(void *of, bool value) { (void)of, embeds = value; }
int32_t llama_pooling_type(const void *of) { return (void)of, 0; }
const void *llama_model_get_vocab(const void *of) { return of; }
int32_t llama_vocab_n_tokens(const void *of) { return (void)of, SIZE; }
bool llama_vocab_is_eog(const void *of, int32_t id) { return (void)of, id == END; }
int32_t llama_model_n_embd(const void *of) { return (void)of, WIDTH; }
void *llama_get_memory(const void *of) { return (void *)(uintptr_t)of; }
bool llama_memory_seq_rm(void *of, int32_t sequence, int32_t from, int32_t to) {
    return (void)of, (void)sequence, (void)from, (void)to, true;
}

size_t llama_state_seq_get_size(void *of, int32_t sequence) { return (void)of, (void)sequence, sizeof "state"; }
size_t llama_state_seq_get_data(void *of, void *to, size_t size, int32_t sequence) {
    return (void)of, (void)sequence, memcpy(to, "state", size), size;
}
size_t llama_state_seq_set_data(void *of, const void *from, size_t size, int32_t sequence) {
    return (void)of, (void)sequence, size == sizeof "state" && memcmp(from, "state", size) == 0 ? size : 0;
}

int32_t llama_tokenize(const void *of, const char *text, int32_t len, int32_t *ids, int32_t room, bool add, bool special) {
    static const char *const names[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    int32_t count = 0;
    (void)of;
    for (int32_t at = 0; at < len && count < room && !add;) {
        int32_t id = (unsigned char)text[at], step = 1;
        for (int i = 0; i < 3 && special; i++)
            if (strncmp(text + at, names[i], strlen(names[i])) == 0)
                id = FIRST_CONTROL + i, step = (int32_t)strlen(names[i]);
        ids[count++] = id;
        at += step;
    }
    return count;
}

int32_t llama_decode(void *of, struct batch batch) {
    const char *path = getenv("FAKE_LLAMA_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    (void)of;
    if (log) {
        fprintf(log, "%d %d %d%s\n", batch.sequences[0][0], batch.positions[0], batch.count, batch.rows ? " rows" : "");
        fclose(log);
    }
    for (int32_t i = 0; i < batch.count; i++) {
        int32_t id = batch.rows ? (int32_t)batch.rows[i * WIDTH] : batch.ids[i];
        int32_t next = id == '\n' ? 'o' : id == 'o' ? 'k' : END;
        memset(logits[i], 0, sizeof logits[i]);
        logits[i][next] = 20;
        for (int k = 0; k < WIDTH; k++) hidden[i][k] = (float)(k == 0 ? id : k == 1 ? batch.positions[i] : 0);
        if (batch.outputs[i]) last_output = i;
    }
    return 0;
}

float *llama_get_logits_ith(void *of, int32_t i) { return (void)of, embeds ? NULL : logits[i < 0 ? last_output : i]; }
float *llama_get_embeddings_ith(void *of, int32_t i) { return (void)of, embeds ? hidden[i < 0 ? last_output : i] : NULL; }

/* A grammar allows the bytes that occur in it, and the end. */
struct candidate {
    int32_t id;
    float logit, share;
};

struct candidates {
    struct candidate *data;
    size_t size;
    int64_t selected;
    bool sorted;
};

void *llama_sampler_init_grammar(const void *of, const char *grammar, const char *root) {
    return (void)of, strcmp(root, "root") == 0 ? strdup(grammar) : NULL;
}

void llama_sampler_apply(void *of, struct candidates *list) {
    for (size_t i = 0; i < list->size; i++) {
        struct candidate *each = &list->data[i];
        if (each->id != END && (each->id <= 0 || each->id > UINT8_MAX || !strchr(of, each->id))) each->logit = -INFINITY;
    }
}

void llama_sampler_accept(void *of, int32_t id) { (void)of, (void)id; }
void llama_sampler_free(void *of) { free(of); }
