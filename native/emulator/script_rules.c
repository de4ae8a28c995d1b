/* script_rules.c: reads the rules of a model script: conditions, what is said, calls, faults. */

#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "placeholders.h"
#include "script.h"
#include "script_words.h"

/* More results than any prompt has: the upper bound when `results` gives none. */
#define ANY_NUMBER 1000000

/* Puts "path:line: what" into the reader's error; the first complaint stays. Returns false. */
bool reader_fail(struct reader *r, const char *format, ...) {
    va_list args;
    if (r->error->len) return false;
    buf_printf(r->error, "%s:%d: ", r->path, r->line);
    va_start(args, format);
    buf_vprintf(r->error, format, args);
    va_end(args);
    return false;
}

/* Begins a rule; rest is its name, which may be empty. */
bool reader_start_rule(struct reader *r, const char *rest) {
    struct script *s = r->script;
    char *name = mem_string(rest);
    words_drop_comment(name);
    if (*name == '#') *name = 0;
    s->rules = mem_grow(s->rules, (s->rule_count + 1) * sizeof *s->rules);
    r->rule = &s->rules[s->rule_count++];
    *r->rule = (struct rule){.name = name, .line = r->line, .results_at_most = ANY_NUMBER};
    return true;
}

/* Frees what a rule owns. */
void rule_free(struct rule *rule) {
    for (size_t i = 0; i < rule->condition_count; i++) regfree(&rule->conditions[i].expression);
    for (size_t i = 0; i < rule->action_count; i++) {
        free(rule->actions[i].text);
        free(rule->actions[i].arguments);
    }
    for (size_t i = 0; i < rule->logit_count; i++) free(rule->logits[i].token);
    words_free(rule->faults, rule->fault_count);
    free(rule->logits);
    free(rule->lora);
    free(rule->rank_yes);
    free(rule->rank_no);
    free(rule->conditions);
    free(rule->actions);
    free(rule->name);
}

/* Adds a condition on subject; rest is a POSIX extended regular expression. */
static bool add_condition(struct reader *r, enum subject subject, bool negated, char *rest) {
    struct rule *rule = r->rule;
    struct condition condition = {.subject = subject, .negated = negated};
    words_drop_comment(rest);
    if (!*rest) return reader_fail(r, "a regular expression is expected here");
    int wrong = regcomp(&condition.expression, rest, REG_EXTENDED | (rule->ignore_case ? REG_ICASE : 0));
    if (wrong) {
        char why[160];
        regerror(wrong, &condition.expression, why, sizeof why);
        regfree(&condition.expression);
        return reader_fail(r, "the regular expression is not valid: %s", why);
    }
    rule->conditions = mem_grow(rule->conditions, (rule->condition_count + 1) * sizeof condition);
    rule->conditions[rule->condition_count++] = condition;
    return true;
}

static bool read_user(struct reader *r, char *rest) { return add_condition(r, SUBJECT_USER, false, rest); }
static bool read_result(struct reader *r, char *rest) { return add_condition(r, SUBJECT_RESULT, false, rest); }
static bool read_prompt(struct reader *r, char *rest) { return add_condition(r, SUBJECT_PROMPT, false, rest); }

/* not user|result|prompt EXPRESSION */
static bool read_not(struct reader *r, char *rest) {
    static const char *const names[] = {"user", "result", "prompt"};
    char *expression = words_split_first(rest);
    for (int i = 0; i < 3; i++)
        if (strcmp(rest, names[i]) == 0) return add_condition(r, (enum subject)i, true, expression);
    return reader_fail(r, "not is written: not user|result|prompt EXPRESSION");
}

/* results N (exactly) | results N+ (at least) */
static bool read_results(struct reader *r, char *rest) {
    double number;
    words_drop_comment(rest);
    size_t len = strlen(rest);
    bool open_ended = len && rest[len - 1] == '+';
    if (open_ended) rest[len - 1] = 0;
    if (!words_number(rest, 0, ANY_NUMBER, &number))
        return reader_fail(r, "results is written: results N | results N+");
    r->rule->results_at_least = (int)number;
    r->rule->results_at_most = open_ended ? ANY_NUMBER : (int)number;
    return true;
}

static bool read_ignore_case(struct reader *r, char *rest) {
    words_drop_comment(rest);
    if (*rest || r->rule->condition_count) return reader_fail(r, "ignore-case stands alone, before the conditions");
    r->rule->ignore_case = true;
    return true;
}

/* Appends an action whose strings the rule owns from then on. */
static void add_action(struct rule *rule, struct action action) {
    rule->actions = mem_grow(rule->actions, (rule->action_count + 1) * sizeof action);
    rule->actions[rule->action_count++] = action;
}

/* Adds text with its escapes resolved. One space ends the directive; those after it begin the text, because Markdown
 * is indented: words_split_first has stepped over them, after the NUL that ends the directive. */
static bool add_text(struct reader *r, enum action_kind kind, const char *rest) {
    struct buf text = {0};
    if (*rest)
        while (rest[-1]) rest--;
    words_unescape(rest, strlen(rest), &text);
    add_action(r->rule, (struct action){.kind = kind, .text = mem_string(buf_text(&text))});
    buf_free(&text);
    return true;
}

static bool read_say(struct reader *r, char *rest) { return add_text(r, ACTION_SAY, rest); }
static bool read_think(struct reader *r, char *rest) { return add_text(r, ACTION_THINK, rest); }

/* call NAME {ARGUMENTS}; the arguments must be a JSON object once the placeholders are filled in. */
static bool read_call(struct reader *r, char *rest) {
    char *arguments = words_split_first(rest);
    struct buf filled = {0}, why = {0};
    struct captures zeroes;
    /* "0" is JSON with quotes around the placeholder and without. */
    for (size_t i = 0; i < CAPTURES; i++) zeroes.user[i] = zeroes.result[i] = (struct capture){"0", 1};
    if (!*arguments) arguments = "{}";
    placeholders_fill(arguments, PLACEHOLDERS_IN_JSON, &zeroes, &filled, NULL);
    struct json_document *doc = json_parse(buf_text(&filled), filled.len, &why);
    bool good = *rest && doc && json_root(doc)->type == JSON_OBJECT;
    json_free(doc);
    buf_free(&filled);
    if (good)
        add_action(r->rule, (struct action){ACTION_CALL, mem_string(rest), mem_string(arguments)});
    else
        reader_fail(r, "call is written: call NAME {JSON ARGUMENTS} %s", buf_text(&why));
    buf_free(&why);
    return good;
}

/* Reads exactly two words of a line, which the caller frees whatever comes of it. */
static bool read_two(char *rest, char **first, char **second) {
    struct buf word = {0};
    *first = *second = NULL;
    if (words_next(&rest, &word)) *first = mem_string(buf_text(&word));
    if (words_next(&rest, &word)) *second = mem_string(buf_text(&word));
    bool good = *second && !words_next(&rest, &word) && !*rest;
    buf_free(&word);
    return good;
}

/* lora NAME | lora - */
static bool read_lora(struct reader *r, char *rest) {
    words_drop_comment(rest);
    if (!*rest || strpbrk(rest, " \t")) return reader_fail(r, "lora is written: lora NAME | lora -");
    free(r->rule->lora);
    r->rule->lora = mem_string(strcmp(rest, "-") == 0 ? "" : rest);
    return true;
}

/* rank YES NO */
static bool read_rank(struct reader *r, char *rest) {
    free(r->rule->rank_yes);
    free(r->rule->rank_no);
    return read_two(rest, &r->rule->rank_yes, &r->rule->rank_no) || reader_fail(r, "rank is written: rank YES NO");
}

/* logit TOKEN NUMBER */
static bool read_logit(struct reader *r, char *rest) {
    struct rule *rule = r->rule;
    char *token, *number;
    double value = 0;
    bool good = read_two(rest, &token, &number) && words_number(number, -1e6, 1e6, &value);
    free(number);
    if (good) {
        rule->logits = mem_grow(rule->logits, (rule->logit_count + 1) * sizeof *rule->logits);
        rule->logits[rule->logit_count++] = (struct logit){token, value};
        return true;
    }
    free(token);
    return reader_fail(r, "logit is written: logit TOKEN NUMBER");
}

/* Checks that the tokens a rule names exist; called when there is a vocabulary. */
bool reader_check_rule(struct reader *r, const struct rule *rule) {
    const struct vocabulary *v = r->script->vocabulary;
    const char *missing = NULL;
    if (rule->rank_no && vocabulary_find(v, rule->rank_no) < 0) missing = rule->rank_no;
    if (rule->rank_yes && vocabulary_find(v, rule->rank_yes) < 0) missing = rule->rank_yes;
    for (size_t i = 0; i < rule->logit_count; i++)
        if (vocabulary_find(v, rule->logits[i].token) < 0) missing = rule->logits[i].token;
    r->line = rule->line;
    return !missing || reader_fail(r, "the vocabulary has no token '%s', which this rule names", missing);
}

/* A fault of this rule's runs; checked now, applied when the rule is chosen. */
static bool read_rule_fault(struct reader *r, char *rest) {
    struct faults scratch;
    struct buf why = {0};
    faults_init(&scratch);
    bool good = faults_apply(&scratch, FAULTS_OF_RULE, rest, &why) || reader_fail(r, "%s", buf_text(&why));
    if (good) words_push(&r->rule->faults, &r->rule->fault_count, rest);
    buf_free(&why);
    return good;
}

static const struct {
    const char *name;
    bool (*read)(struct reader *r, char *rest);
} directives[] = {
    {"user", read_user},       {"result", read_result}, {"prompt", read_prompt}, {"not", read_not},
    {"results", read_results}, {"ignore-case", read_ignore_case},                {"think", read_think},
    {"say", read_say},         {"call", read_call},     {"fault", read_rule_fault},
    {"lora", read_lora},       {"rank", read_rank},     {"logit", read_logit},
};

/* Reads one line of the rule the reader is in. */
bool reader_rule_line(struct reader *r, const char *word, char *rest) {
    for (size_t i = 0; i < sizeof directives / sizeof *directives; i++)
        if (strcmp(directives[i].name, word) == 0) return directives[i].read(r, rest);
    return reader_fail(r, "'%s' is not a directive of a rule", word);
}
