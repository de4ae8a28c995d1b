/* script.h: a model script as values.
 *
 * A script is the emulator's "model file": text a person writes (native/README.md has the grammar). Reading it
 * checks everything that can be checked without a prompt, so a script that loads cannot fail later. */

#ifndef EMULATOR_SCRIPT_H
#define EMULATOR_SCRIPT_H

#include <regex.h>
#include <stdbool.h>
#include <stdint.h>

#include "buffers.h"
#include "faults.h"
#include "speeds.h"
#include "vocabulary.h"

#define SCRIPT_MAGIC "RKLLM-EMULATOR 1"

/* How `call` lines are written. */
enum call_syntax { CALLS_HERMES, CALLS_PROJECT_JSON, CALLS_PROJECT_XML };

/* What a condition's expression is searched in. */
enum subject { SUBJECT_USER, SUBJECT_RESULT, SUBJECT_PROMPT };

struct condition {
    enum subject subject;
    bool negated; /* holds when the expression is not found */
    regex_t expression;
};

/* What becomes of prompt-cache files. */
enum cache_files { CACHE_FILES_WORK, CACHE_FILES_REFUSED, CACHE_FILES_IGNORED };

enum action_kind { ACTION_THINK, ACTION_SAY, ACTION_CALL };

struct action {
    enum action_kind kind;
    char *text;      /* what to say or think, or the name of the tool; placeholders not yet filled in */
    char *arguments; /* of a call: JSON with placeholders */
};

/* A token of the script and the value it is to have among the logits. */
struct logit {
    char *token;
    double value;
};

struct rule {
    char *name; /* what follows `rule`; "" when nothing does */
    int line;
    bool ignore_case;
    int results_at_least; /* how many tool results must follow the last user turn */
    int results_at_most;
    struct condition *conditions;
    size_t condition_count;
    struct action *actions;
    size_t action_count;
    char **faults;
    size_t fault_count;
    char *lora; /* the adapter it needs; "" for none at all, NULL when that does not matter */
    char *rank_yes, *rank_no; /* of a reranker; NULL when the rule is not one */
    struct logit *logits;
    size_t logit_count;
};

/* The text around something in a prompt. */
struct markers {
    char *open;
    char *close;
};

/* How a text prompt is put together; absent when the model has no chat template. */
struct chat_template {
    bool present;
    char *system;
    char *prefix;
    char *postfix;
    char *no_thinking;  /* added after postfix when thinking is off; "" for a model that does not think */
    char *system_open;  /* around the system text when tools are declared */
    char *system_close;
};

struct script {
    char *path;
    char *weights;        /* the file whose weights answer in place of the rules; NULL: the rules do */
    uint64_t fingerprint; /* of the text of the script; ties prompt-cache files to it */
    struct vocabulary *vocabulary;
    struct ids eos; /* the first is the one the model emits */
    int hidden; /* width of hidden states and embeddings */
    int picture_outputs; /* rows that the vision encoder makes for each token of a picture */
    int picture_patch;   /* pixels of a side that are one token (M-RoPE); 0: sizes are not compared */
    enum cache_files cache_files;
    bool lacks_tokenizer, lacks_embedding; /* exported without */
    int context_limit;
    int npu_cores;
    char *platform;
    char *toolkit;
    char *dtype;
    struct speed speed;
    struct markers user, result;
    enum call_syntax call_syntax;
    struct chat_template chat;
    struct faults faults;
    struct rule *rules;
    size_t rule_count;
};

struct script *script_load(const char *path, struct buf *error);
void script_free(struct script *script);

/* Used by the parts of the reader. */
struct reader {
    struct script *script;
    const char *path;
    int line;
    char *vocabulary;      /* the word after `vocabulary` */
    char **controls;       /* the words after `control` */
    size_t control_count;
    char **pieces;         /* the words after `piece` */
    size_t piece_count;
    int vocabulary_size;   /* 0: what the vocabulary has */
    char **eos;            /* the words after `eos` */
    size_t eos_count;
    struct rule *rule;     /* the rule being read; NULL in the header */
    struct buf *error;
};

bool reader_fail(struct reader *r, const char *format, ...) PRINTF_LIKE(2, 3);
bool reader_rule_line(struct reader *r, const char *word, char *rest);
bool reader_check_rule(struct reader *r, const struct rule *rule);
bool reader_start_rule(struct reader *r, const char *name);
void rule_free(struct rule *rule);

#endif
