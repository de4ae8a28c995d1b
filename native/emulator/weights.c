/* weights.c: see weights.h. */

#include "weights.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kv_cache.h"
#include "llama_library.h"

/* Tokens evaluated at once; between two such parts an evaluation can be stopped. */
#define PART 256

/* Rows of pictures and other embeddings that are remembered; older ones are forgotten. */
#define KEPT_ROWS 8192

struct kept_row {
    int32_t id;
    float *numbers;
};

/* What libllama's cache holds of a sequence. */
struct state {
    struct ids evaluated;
    float *logits;     /* after the last of them; NULL before the first evaluation */
    bool has_logits;
    void *grammar;     /* the sampler that masks what a grammar does not allow; NULL without one */
};

struct weights {
    const struct llama_library *library;
    void *model, *context, *memory;
    const void *vocab;
    int width, sequences;
    size_t vocabulary;
    struct state *states; /* one per sequence */
    struct kept_row *rows;
    size_t row_count, next_row;
    struct ids loaded; /* the tokens of a prompt-cache file, and what libllama's cache held of them */
    struct buf loaded_state;
    uint64_t random, identity;
};

/* Returns how many processors this process may use, or what $RKLLM_EMULATOR_THREADS says. */
static int32_t thread_count(void) {
    const char *wanted = getenv("RKLLM_EMULATOR_THREADS");
    cpu_set_t set;
    int count = wanted ? atoi(wanted) : 0;
    if (count <= 0) count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count;
}

/* Makes the context of a loaded model; false when libllama refuses. */
static bool make_context(struct weights *w, int context) {
    struct llama_params params = w->library->context_default();
    params.numbers[0] = (uint32_t)(context * w->sequences);
    params.numbers[1] = params.numbers[2] = PART;
    params.numbers[3] = (uint32_t)w->sequences;
    w->context = w->library->context_create(w->model, params);
    if (!w->context) return false;
    w->library->set_threads(w->context, thread_count(), thread_count());
    w->memory = w->library->memory(w->context);
    return true;
}

/* Opens the weights at path with a cache of context tokens for each sequence. NULL with a sentence in error. */
struct weights *weights_open(const char *path, int context, int sequences, struct buf *error) {
    const struct llama_library *library = llama_library_open(error);
    if (!library) return NULL;
    struct weights *w = mem_alloc(sizeof *w);
    w->library = library;
    w->sequences = sequences;
    w->random = sampling_seed();
    struct stat about;
    if (stat(path, &about) == 0)
        w->identity = (uint64_t)about.st_size * 1099511628211ULL ^
                      ((uint64_t)about.st_mtim.tv_sec * 1000000000 + (uint64_t)about.st_mtim.tv_nsec);
    w->states = mem_alloc((size_t)sequences * sizeof *w->states);
    w->rows = mem_alloc(KEPT_ROWS * sizeof *w->rows);
    w->model = library->model_load(path, library->model_default());
    if (!w->model)
        buf_printf(error, "llama.cpp cannot load the weights %s: the file is missing, damaged, or of a kind of model "
                          "this release does not know", path);
    else if (!make_context(w, context))
        buf_printf(error, "there is no memory for a context of %d tokens of %s", context * sequences, path);
    if (!w->context) {
        weights_close(w);
        return NULL;
    }
    w->vocab = library->vocab(w->model);
    w->vocabulary = (size_t)library->vocab_size(w->vocab);
    w->width = library->width(w->model);
    return w;
}

/* Frees everything; NULL is allowed. */
void weights_close(struct weights *w) {
    if (!w) return;
    for (int i = 0; i < w->sequences; i++) {
        ids_free(&w->states[i].evaluated);
        free(w->states[i].logits);
        weights_hold_to(w, i, NULL);
    }
    for (size_t i = 0; i < w->row_count; i++) free(w->rows[i].numbers);
    weights_release(w);
    if (w->context) w->library->context_free(w->context);
    if (w->model) w->library->model_free(w->model);
    free(w->states);
    free(w->rows);
    free(w);
}

/* Returns the width of a hidden state and of an embedding. */
int weights_width(const struct weights *w) { return w->width; }

/* Returns the width of a row of logits. */
size_t weights_vocabulary(const struct weights *w) { return w->vocabulary; }

/* True for the tokens that end a generation, as the file itself says. */
bool weights_ends(const struct weights *w, int32_t id) { return w->library->ends_generation(w->vocab, id); }

/* Appends the ids of a text, control tokens included and none put in front; false when it cannot be cut up. */
bool weights_encode(const struct weights *w, const char *text, size_t len, struct ids *out) {
    int32_t room = (int32_t)len + 16; /* no more tokens than bytes, and a few that some tokenizers add */
    int32_t *ids = mem_alloc((size_t)room * sizeof *ids);
    int32_t count = w->library->tokenize(w->vocab, text, (int32_t)len, ids, room, false, true);
    if (count > 0) ids_append(out, ids, (size_t)count);
    free(ids);
    return count >= 0;
}

/* Returns the row that a negative id represents; NULL when it was forgotten or never known. */
static const float *find_row(const struct weights *w, int32_t id) {
    for (size_t i = 0; i < w->row_count; i++)
        if (w->rows[i].id == id) return w->rows[i].numbers;
    return NULL;
}

/* Remembers the embedding that a negative id represents. */
void weights_keep_row(struct weights *w, int32_t id, const float *row) {
    if (find_row(w, id)) return;
    struct kept_row *slot = &w->rows[w->next_row];
    w->next_row = (w->next_row + 1) % KEPT_ROWS;
    if (w->row_count < KEPT_ROWS) w->row_count++;
    free(slot->numbers);
    slot->id = id;
    slot->numbers = mem_alloc((size_t)w->width * sizeof *row);
    memcpy(slot->numbers, row, (size_t)w->width * sizeof *row);
}

/* Evaluates up to PART ids of one kind, tokens or rows, after what the sequence holds. The logits or hidden states of
 * all, or of the last, can be asked for after it. */
static bool evaluate(struct weights *w, int sequence, const int32_t *ids, size_t count, bool all) {
    int32_t tokens[PART], positions[4 * PART] = {0}, counts[PART], number = sequence, *numbers[PART];
    int8_t outputs[PART];
    size_t width = (size_t)w->width;
    bool are_rows = ids[0] < 0, good = true;
    float *rows = are_rows ? mem_alloc(count * width * sizeof *rows) : NULL;
    for (size_t i = 0; i < count && good; i++) {
        const float *row = are_rows ? find_row(w, ids[i]) : NULL;
        good = !are_rows || row;
        if (row) memcpy(rows + i * width, row, width * sizeof *rows);
        tokens[i] = ids[i];
        /* Models with positions of several dimensions read three of them, and a zero, for rows. */
        for (size_t part = 0; part < 3; part++)
            positions[part * count + i] = (int32_t)(w->states[sequence].evaluated.len + i);
        counts[i] = 1;
        numbers[i] = &number;
        outputs[i] = all || i + 1 == count;
    }
    struct llama_tokens batch = {(int32_t)count, are_rows ? NULL : tokens, rows, positions, counts, numbers, outputs};
    good = good && w->library->decode(w->context, batch) == 0;
    if (good) ids_append(&w->states[sequence].evaluated, ids, count);
    free(rows);
    return good;
}

/* Returns how many ids from the first on are of its kind, at most PART. */
static size_t part_length(const int32_t *ids, size_t count) {
    size_t len = 1;
    while (len < count && len < PART && (ids[len] < 0) == (ids[0] < 0)) len++;
    return len;
}

/* Forgets what the sequence holds from a position on. Models that cannot forget a part forget all. */
static void forget_from(struct weights *w, int sequence, size_t position) {
    struct ids *evaluated = &w->states[sequence].evaluated;
    if (position >= evaluated->len) return;
    if (!w->library->memory_remove(w->memory, sequence, (int32_t)position, -1)) {
        w->library->memory_remove(w->memory, sequence, -1, -1);
        position = 0;
    }
    ids_truncate(evaluated, position);
}

/* Puts the state of the loaded file into a sequence; false when libllama does not take it, and then it is empty. */
static bool restore(struct weights *w, int sequence) {
    struct state *state = &w->states[sequence];
    const struct buf *kept = &w->loaded_state;
    forget_from(w, sequence, 0);
    state->has_logits = false;
    if (!kept->len || !w->library->state_restore(w->context, kept->data, kept->len, sequence)) return false;
    ids_append(&state->evaluated, w->loaded.data, w->loaded.len);
    /* It may have been saved with tokens of the answer. */
    if (w->library->memory_remove(w->memory, sequence, (int32_t)w->loaded.len, -1)) return true;
    forget_from(w, sequence, 0);
    return false;
}

/* Forgets what differs from the first count ids, of which a loaded file may have more than the sequence. */
static void align(struct weights *w, int sequence, const int32_t *ids, size_t count) {
    const struct ids *evaluated = &w->states[sequence].evaluated;
    if (kv_match(&w->loaded, ids, count) > kv_match(evaluated, ids, count)) restore(w, sequence);
    forget_from(w, sequence, kv_match(evaluated, ids, count));
}

/* Returns a number that changes with the file of the weights. */
uint64_t weights_identity(const struct weights *w) { return w->identity; }

/* Appends what libllama's cache holds of the first sequence. */
void weights_save(const struct weights *w, struct buf *out) {
    size_t size = w->library->state_size(w->context, 0);
    char *state = mem_alloc(size + 1);
    buf_put(out, state, w->library->state_copy(w->context, state, size, 0));
    free(state);
}

/* Restores what weights_save wrote after these ids, and again for every prompt that begins with more of them than a
 * sequence holds, until weights_release. False when libllama does not take it. */
bool weights_load(struct weights *w, const struct ids *ids, const char *state, size_t size) {
    weights_release(w);
    ids_append(&w->loaded, ids->data, ids->len);
    buf_put(&w->loaded_state, state, size);
    bool good = restore(w, 0);
    if (!good) weights_release(w);
    return good;
}

/* Forgets the state that was loaded; sequences keep what they hold. */
void weights_release(struct weights *w) {
    ids_free(&w->loaded);
    buf_free(&w->loaded_state);
}

/* Makes the sequence hold exactly these ids, and keeps the logits after the last of them. */
enum weights_outcome weights_hold(struct weights *w, int sequence, const struct ids *ids, weights_stop stop,
                                  void *context) {
    struct state *state = &w->states[sequence];
    size_t before = state->evaluated.len;
    align(w, sequence, ids->data, ids->len);
    if (before == ids->len && state->evaluated.len == before && state->has_logits) return WEIGHTS_DONE;
    state->has_logits = false;
    /* The last token's logits are needed, and only an evaluation gives them. */
    if (state->evaluated.len == ids->len && ids->len) forget_from(w, sequence, ids->len - 1);
    while (state->evaluated.len < ids->len) {
        if (stop && stop(context)) return WEIGHTS_STOPPED;
        const int32_t *next = ids->data + state->evaluated.len;
        size_t count = part_length(next, ids->len - state->evaluated.len);
        if (!evaluate(w, sequence, next, count, false)) return WEIGHTS_FAILED;
    }
    const float *logits = w->library->logits(w->context, -1);
    if (!logits) return WEIGHTS_FAILED;
    if (!state->logits) state->logits = mem_alloc(w->vocabulary * sizeof(float));
    memcpy(state->logits, logits, w->vocabulary * sizeof(float));
    state->has_logits = true;
    return WEIGHTS_DONE;
}

/* Lets the sequence's next tokens be those that a grammar of llama.cpp allows, or all of them without one. False when
 * libllama cannot read the grammar. */
bool weights_hold_to(struct weights *w, int sequence, const char *grammar) {
    struct state *state = &w->states[sequence];
    if (state->grammar) w->library->sampler_free(state->grammar);
    state->grammar = grammar ? w->library->grammar_create(w->vocab, grammar, "root") : NULL;
    return !grammar || state->grammar;
}

/* True when the grammar of the sequence allows a token. */
static bool is_allowed(const struct weights *w, const struct state *state, int32_t id) {
    struct llama_candidate one = {id, 0, 0};
    struct llama_candidates list = {&one, 1, -1, false};
    w->library->sampler_apply(state->grammar, &list);
    return !isinf(one.logit);
}

/* Makes the logits of tokens that the grammar does not allow infinitely low. */
static void mask(const struct weights *w, struct state *state) {
    struct llama_candidate *each = mem_alloc(w->vocabulary * sizeof *each);
    struct llama_candidates list = {each, w->vocabulary, -1, false};
    for (size_t i = 0; i < w->vocabulary; i++) each[i] = (struct llama_candidate){(int32_t)i, state->logits[i], 0};
    w->library->sampler_apply(state->grammar, &list);
    for (size_t i = 0; i < list.size; i++) state->logits[each[i].id] = each[i].logit;
    free(each);
}

/* Draws the token that follows what the sequence holds; the penalties look at the recent ids. */
int32_t weights_sample(struct weights *w, int sequence, const struct sampling *how, const struct ids *recent) {
    struct state *state = &w->states[sequence];
    int32_t id = sampling_draw(how, state->logits, w->vocabulary, recent->data, recent->len, &w->random);
    if (!state->grammar) return id;
    if (!is_allowed(w, state, id)) {
        /* Masking is slow, and few tokens need it. */
        mask(w, state);
        id = sampling_draw(how, state->logits, w->vocabulary, recent->data, recent->len, &w->random);
    }
    w->library->sampler_accept(state->grammar, id);
    return id;
}

/* Copies the rows after the last count ids that were evaluated. */
static bool copy_rows(const struct weights *w, size_t count, bool logits, float *rows) {
    size_t width = logits ? w->vocabulary : (size_t)w->width;
    for (size_t i = 0; i < count; i++) {
        const float *row = (logits ? w->library->logits : w->library->hidden)(w->context, (int32_t)i);
        if (!row) return false;
        memcpy(rows + i * width, row, width * sizeof *rows);
    }
    return true;
}

/* Evaluates the ids after the first from and writes a row for each: logits, or last hidden states. */
static enum weights_outcome evaluate_rows(struct weights *w, int sequence, const struct ids *ids, size_t from,
                                          bool logits, float *rows, weights_stop stop, void *context) {
    const struct ids *evaluated = &w->states[sequence].evaluated;
    size_t width = logits ? w->vocabulary : (size_t)w->width;
    while (evaluated->len < ids->len) {
        const int32_t *next = ids->data + evaluated->len;
        size_t count = part_length(next, ids->len - evaluated->len);
        float *to = rows + (evaluated->len - from) * width;
        if (stop && stop(context)) return WEIGHTS_STOPPED;
        if (!evaluate(w, sequence, next, count, true) || !copy_rows(w, count, logits, to)) return WEIGHTS_FAILED;
    }
    return WEIGHTS_DONE;
}

/* Makes the sequence hold exactly these ids, and writes the rows of those from position from on. */
enum weights_outcome weights_rows(struct weights *w, int sequence, const struct ids *ids, size_t from, bool logits,
                                  float *rows, weights_stop stop, void *context) {
    struct state *state = &w->states[sequence];
    struct ids first = {.data = ids->data, .len = from};
    enum weights_outcome outcome = WEIGHTS_DONE;
    /* Pooled states, as files of embedding models ask for, are one for a whole text; the interface wants one a token. */
    if (!logits && w->library->pooling(w->context) > 0) return WEIGHTS_FAILED;
    align(w, sequence, ids->data, from);
    if (state->evaluated.len < from) outcome = weights_hold(w, sequence, &first, stop, context);
    state->has_logits = false;
    if (outcome != WEIGHTS_DONE) return outcome;
    w->library->set_embeddings(w->context, !logits);
    outcome = evaluate_rows(w, sequence, ids, from, logits, rows, stop, context);
    w->library->set_embeddings(w->context, false);
    return outcome;
}
