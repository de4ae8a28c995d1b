/* script.c: reads the header of a model script and puts the whole together. Rules are in script_rules.c, the
 * syntax inside a line in script_words.c. */

#include "script.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "script_words.h"
#include "source_file.h"

/* Replaces an owned string by a copy of text. */
static void replace(char **slot, const char *text) {
    free(*slot);
    *slot = mem_string(text);
}

/* Reads the only word of a line into *slot, which is freed first. */
static bool read_word(struct reader *r, char *rest, char **slot) {
    struct buf word = {0};
    bool found = words_next(&rest, &word);
    if (found) replace(slot, buf_text(&word));
    found = found && !words_next(&rest, &word) && !*rest;
    buf_free(&word);
    return found || reader_fail(r, "one word is expected here");
}

/* Reads all words of a line into a list. */
static bool read_words(struct reader *r, char *rest, char ***list, size_t *count) {
    struct buf word = {0};
    size_t before = *count;
    while (words_next(&rest, &word)) words_push(list, count, buf_text(&word));
    buf_free(&word);
    return (*count > before && !*rest) || reader_fail(r, "at least one word is expected here");
}

static bool read_vocabulary(struct reader *r, char *rest) { return read_word(r, rest, &r->vocabulary); }

static bool read_control(struct reader *r, char *rest) {
    return read_words(r, rest, &r->controls, &r->control_count);
}

static bool read_piece(struct reader *r, char *rest) { return read_words(r, rest, &r->pieces, &r->piece_count); }

static bool read_eos(struct reader *r, char *rest) { return read_words(r, rest, &r->eos, &r->eos_count); }

static bool read_weights(struct reader *r, char *rest) { return read_word(r, rest, &r->script->weights); }

static bool read_platform(struct reader *r, char *rest) { return read_word(r, rest, &r->script->platform); }

static bool read_toolkit(struct reader *r, char *rest) { return read_word(r, rest, &r->script->toolkit); }

static bool read_dtype(struct reader *r, char *rest) { return read_word(r, rest, &r->script->dtype); }

/* Reads the only word of a line as a whole number within the bounds. */
static bool read_count(struct reader *r, char *rest, int lowest, int highest, int *count) {
    char *word = NULL;
    double number = 0;
    bool good = read_word(r, rest, &word) && words_number(word, lowest, highest, &number);
    free(word);
    *count = (int)number;
    return good || reader_fail(r, "a number from %d to %d is expected here", lowest, highest);
}

static bool read_context(struct reader *r, char *rest) {
    return read_count(r, rest, 32, 1 << 20, &r->script->context_limit);
}

static bool read_cores(struct reader *r, char *rest) { return read_count(r, rest, 1, 3, &r->script->npu_cores); }

/* speed flat | speed prefill X decode Y [halved-at N] | speed profile NAME */
static bool read_speed(struct reader *r, char *rest) {
    return speed_read(rest, &r->script->speed) ||
           reader_fail(r, "speed is written: speed flat | speed prefill TOKENS_PER_S decode TOKENS_PER_S "
                          "[halved-at TOKENS] | speed profile NAME");
}

static bool read_hidden(struct reader *r, char *rest) { return read_count(r, rest, 1, 16384, &r->script->hidden); }

/* pictures OUTPUTS [PATCH] */
static bool read_pictures(struct reader *r, char *rest) {
    struct buf word = {0};
    double outputs = 0, patch = 0;
    bool good = words_next(&rest, &word) && words_number(buf_text(&word), 1, 8, &outputs);
    if (good && words_next(&rest, &word)) good = words_number(buf_text(&word), 1, 256, &patch);
    good = good && !*rest;
    buf_free(&word);
    r->script->picture_outputs = (int)outputs;
    r->script->picture_patch = (int)patch;
    return good || reader_fail(r, "pictures is written: pictures OUTPUTS [PIXELS_OF_A_TOKEN]");
}

static bool read_vocabulary_size(struct reader *r, char *rest) {
    return read_count(r, rest, 1, 1 << 21, &r->vocabulary_size);
}

/* Reads the only word of a line as one of count names into *choice. */
static bool read_choice(struct reader *r, char *rest, const char *const *names, int count, int *choice) {
    char *word = NULL;
    int found = -1;
    if (read_word(r, rest, &word))
        for (int i = 0; i < count; i++)
            if (strcmp(word, names[i]) == 0) found = i;
    free(word);
    if (found >= 0) *choice = found;
    return found >= 0;
}

/* prompt_cache yes | refused | ignored */
static bool read_prompt_cache(struct reader *r, char *rest) {
    static const char *const names[] = {"yes", "refused", "ignored"};
    int choice = 0;
    bool good = read_choice(r, rest, names, 3, &choice);
    r->script->cache_files = (enum cache_files)choice;
    return good || reader_fail(r, "prompt_cache is one of yes, refused, ignored");
}

/* without tokenizer | without embedding */
static bool read_without(struct reader *r, char *rest) {
    static const char *const names[] = {"tokenizer", "embedding"};
    int choice = -1;
    bool good = read_choice(r, rest, names, 2, &choice);
    if (choice == 0) r->script->lacks_tokenizer = true;
    if (choice == 1) r->script->lacks_embedding = true;
    return good || reader_fail(r, "without is written: without tokenizer | without embedding");
}

/* turn user "OPEN" "CLOSE" | turn result "OPEN" "CLOSE" */
static bool read_turn(struct reader *r, char *rest) {
    char **words = NULL;
    size_t count = 0;
    bool good = read_words(r, rest, &words, &count) && count == 3 && *words[1] && *words[2];
    bool user = good && strcmp(words[0], "user") == 0;
    good = user || (good && strcmp(words[0], "result") == 0);
    if (good) {
        struct markers *markers = user ? &r->script->user : &r->script->result;
        replace(&markers->open, words[1]);
        replace(&markers->close, words[2]);
    }
    words_free(words, count);
    return good || reader_fail(r, "turn is written: turn user|result \"OPEN\" \"CLOSE\"");
}

static bool read_call_syntax(struct reader *r, char *rest) {
    static const char *const names[] = {"hermes", "project_json", "project_xml"};
    int choice = 0;
    bool good = read_choice(r, rest, names, 3, &choice);
    r->script->call_syntax = (enum call_syntax)choice;
    return good || reader_fail(r, "call_syntax is one of hermes, project_json, project_xml");
}

/* Sets the template that ChatML models have. */
static void use_chatml(struct chat_template *chat) {
    replace(&chat->system, "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n");
    replace(&chat->prefix, "<|im_start|>user\n");
    replace(&chat->postfix, "<|im_end|>\n<|im_start|>assistant\n");
    chat->present = true;
}

/* template chatml | template PART "TEXT" PART "TEXT" ... ; several lines add up. */
static bool read_template(struct reader *r, char *rest) {
    struct chat_template *chat = &r->script->chat;
    const struct {
        const char *name;
        char **slot;
    } parts[] = {{"system", &chat->system},           {"prefix", &chat->prefix},
                 {"postfix", &chat->postfix},         {"no_thinking", &chat->no_thinking},
                 {"system_open", &chat->system_open}, {"system_close", &chat->system_close}};
    const char *usage = "template is written: template chatml | template PART \"TEXT\" ... with the parts "
                        "system, prefix, postfix, no_thinking, system_open, system_close";
    struct buf word = {0};
    bool good = true;
    while (good && words_next(&rest, &word)) {
        char **slot = NULL;
        if (strcmp(buf_text(&word), "chatml") == 0) {
            use_chatml(chat);
            continue;
        }
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            if (strcmp(parts[i].name, buf_text(&word)) == 0) slot = parts[i].slot;
        good = slot && words_next(&rest, &word);
        if (good) replace(slot, buf_text(&word));
        chat->present = true;
    }
    good = good && !*rest;
    buf_free(&word);
    return good || reader_fail(r, "%s", usage);
}

/* A fault for every run and for init. */
static bool read_fault(struct reader *r, char *rest) {
    struct buf why = {0};
    bool good = faults_apply(&r->script->faults, FAULTS_OF_MODEL, rest, &why) || reader_fail(r, "%s", buf_text(&why));
    buf_free(&why);
    return good;
}

static const struct {
    const char *name;
    bool (*read)(struct reader *r, char *rest);
} directives[] = {
    {"vocabulary", read_vocabulary}, {"control", read_control}, {"eos", read_eos},
    {"context", read_context},       {"platform", read_platform}, {"cores", read_cores},
    {"toolkit", read_toolkit},       {"dtype", read_dtype},     {"speed", read_speed},
    {"turn", read_turn},             {"call_syntax", read_call_syntax}, {"template", read_template},
    {"fault", read_fault},           {"piece", read_piece},     {"vocabulary_size", read_vocabulary_size},
    {"hidden", read_hidden},         {"prompt_cache", read_prompt_cache}, {"without", read_without},
    {"weights", read_weights},       {"pictures", read_pictures},
};

/* Reads one line of the script after the first; cuts it up in place. */
static bool read_line(struct reader *r, char *line) {
    char *word = words_trim(line);
    if (!*word || *word == '#') return true;
    char *rest = words_split_first(word);
    if (strcmp(word, "rule") == 0) return reader_start_rule(r, rest);
    if (r->rule) return reader_rule_line(r, word, rest);
    for (size_t i = 0; i < sizeof directives / sizeof *directives; i++)
        if (strcmp(directives[i].name, word) == 0) return directives[i].read(r, rest);
    return reader_fail(r, "'%s' is not a directive of the header; rules begin with a line `rule`", word);
}

/* Reads every line after the magic. */
static bool read_lines(struct reader *r, char *text) {
    bool good = true;
    for (char *line = text; line && good;) {
        char *end = strchr(line, '\n');
        if (end) *end++ = 0;
        r->line++;
        if (r->line > 1) good = read_line(r, line);
        line = end;
    }
    return good;
}

/* Loads the vocabulary that was named. */
static bool load_vocabulary(struct reader *r) {
    bool bytes = r->vocabulary && strcmp(r->vocabulary, "bytes") == 0;
    if (!r->vocabulary) return reader_fail(r, "the directive `vocabulary` is missing");
    if (bytes) {
        struct vocabulary *v = r->script->vocabulary = vocabulary_of_bytes();
        int32_t id = 256;
        for (size_t i = 0; i < r->control_count; i++)
            vocabulary_add_control(v, id++, r->controls[i], strlen(r->controls[i]), true);
        for (size_t i = 0; i < r->piece_count; i++)
            vocabulary_add_piece(v, id++, r->pieces[i], strlen(r->pieces[i]));
    } else {
        struct buf path = {0}, why = {0};
        if (r->control_count || r->piece_count)
            return reader_fail(r, "`control` and `piece` go with `vocabulary bytes` only");
        path_beside(r->path, r->vocabulary, &path);
        r->script->vocabulary = vocabulary_load(buf_text(&path), &why);
        if (!r->script->vocabulary) reader_fail(r, "%s", buf_text(&why));
        buf_free(&path);
        buf_free(&why);
    }
    struct vocabulary *v = r->script->vocabulary;
    if (!v) return false;
    if (r->vocabulary_size && (size_t)r->vocabulary_size < vocabulary_size(v))
        return reader_fail(r, "`vocabulary_size` is less than the %zu ids of the vocabulary", vocabulary_size(v));
    if (r->vocabulary_size) vocabulary_pad(v, (size_t)r->vocabulary_size);
    vocabulary_finish(v);
    return true;
}

/* Finds the ids of the words after `eos`, or of the usual names when there was no such line. */
static bool find_eos(struct reader *r) {
    static const char *const usual[] = {"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<end_of_turn>", "</s>", "<eos>"};
    for (size_t i = 0; i < r->eos_count; i++) {
        int32_t id = vocabulary_find(r->script->vocabulary, r->eos[i]);
        if (id < 0) return reader_fail(r, "the vocabulary has no token '%s', which `eos` names", r->eos[i]);
        ids_put(&r->script->eos, id);
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual && !r->script->eos.len; i++) {
        int32_t id = vocabulary_find(r->script->vocabulary, usual[i]);
        if (id >= 0) ids_put(&r->script->eos, id);
    }
    return r->script->eos.len || reader_fail(r, "the directive `eos` is missing, and no usual name of it is known");
}

/* Checks what the rules could not know before there was a vocabulary. */
static bool check_rules(struct reader *r) {
    bool good = true;
    for (size_t i = 0; i < r->script->rule_count && good; i++) good = reader_check_rule(r, &r->script->rules[i]);
    return good;
}

/* Returns a script with the values that hold when a directive is absent. */
static struct script *script_defaults(const char *path) {
    struct script *s = mem_alloc(sizeof *s);
    s->path = mem_string(path);
    s->context_limit = 4096;
    s->hidden = 256;
    s->picture_outputs = 1;
    s->platform = mem_string("RK3588");
    s->toolkit = mem_string("");
    s->dtype = mem_string("W8A8");
    s->user = (struct markers){mem_string("<|im_start|>user\n"), mem_string("<|im_end|>")};
    s->result = (struct markers){mem_string("<tool_response>\n"), mem_string("\n</tool_response>")};
    s->chat.system = mem_string("");
    s->chat.prefix = mem_string("");
    s->chat.postfix = mem_string("");
    s->chat.no_thinking = mem_string("");
    s->chat.system_open = mem_string("<|im_start|>system\n");
    s->chat.system_close = mem_string("<|im_end|>\n");
    faults_init(&s->faults);
    return s;
}

/* Returns the FNV-1a hash of the bytes. */
static uint64_t fingerprint_of(const struct buf *text) {
    uint64_t hash = 1469598103934665603ULL;
    for (size_t i = 0; i < text->len; i++) hash = (hash ^ (unsigned char)text->data[i]) * 1099511628211ULL;
    return hash;
}

/* Reads the script at path, whose first line has been checked. Returns a script the caller frees, or NULL with a
 * sentence in error that names file and line. */
struct script *script_load(const char *path, struct buf *error) {
    struct buf text = {0};
    struct reader r = {.script = script_defaults(path), .path = path, .error = error};
    bool good = source_file_read(path, &text) || reader_fail(&r, "%s", strerror(errno));
    if (good) {
        r.script->fingerprint = fingerprint_of(&text);
        good = read_lines(&r, text.data) && load_vocabulary(&r) && find_eos(&r) && check_rules(&r);
    }
    buf_free(&text);
    free(r.vocabulary);
    words_free(r.controls, r.control_count);
    words_free(r.pieces, r.piece_count);
    words_free(r.eos, r.eos_count);
    if (good) return r.script;
    script_free(r.script);
    return NULL;
}

static void markers_free(struct markers *markers) {
    free(markers->open);
    free(markers->close);
}

/* Frees a script with everything in it; NULL is allowed. */
void script_free(struct script *s) {
    if (!s) return;
    char *strings[] = {s->path,         s->weights,         s->platform,         s->toolkit,          s->dtype,           s->chat.system,
                       s->chat.prefix,  s->chat.postfix,     s->chat.no_thinking, s->chat.system_open,
                       s->chat.system_close};
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) free(strings[i]);
    markers_free(&s->user);
    markers_free(&s->result);
    vocabulary_free(s->vocabulary);
    ids_free(&s->eos);
    for (size_t i = 0; i < s->rule_count; i++) rule_free(&s->rules[i]);
    free(s->rules);
    free(s);
}
