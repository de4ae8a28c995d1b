/* answer.c: chooses the first rule that fits, fills in what it captured, spells its calls and cuts the text into
 * token ids. */

#include "answer.h"

#include <math.h>
#include <string.h>

#include "json.h"
#include "placeholders.h"
#include "relevance.h"

/* About what the two answers of a reranker have as logits; all others lie far below. */
#define RANK_LOGIT 16

/* The text being written, and which of its bytes were captured from the prompt. */
struct draft {
    struct buf text, plain;
};

/* Appends text the script wrote, in which control tokens count. */
static void put(struct draft *draft, const char *text) {
    buf_puts(&draft->text, text);
    buf_fill(&draft->plain, 0, strlen(text));
}

/* Appends len bytes of text in which control tokens do not count. */
static void put_plain(struct draft *draft, const char *text, size_t len) {
    buf_put(&draft->text, text, len);
    buf_fill(&draft->plain, 1, len);
}

/* Tests one condition; when its expression is found, remembers what it captured. */
static bool holds(const struct condition *condition, const struct prompt_view *view, struct captures *captures) {
    const char *text = condition->subject == SUBJECT_USER     ? view->user
                       : condition->subject == SUBJECT_RESULT ? view->result
                                                              : view->text;
    struct capture *slots = condition->subject == SUBJECT_USER     ? captures->user
                            : condition->subject == SUBJECT_RESULT ? captures->result
                                                                   : NULL;
    regmatch_t matches[CAPTURES];
    bool found = regexec(&condition->expression, text, CAPTURES, matches, 0) == 0;
    if (found && slots && !condition->negated)
        for (int i = 0; i < CAPTURES; i++)
            slots[i] = matches[i].rm_so < 0 ? (struct capture){0}
                                            : (struct capture){text + matches[i].rm_so,
                                                               (size_t)(matches[i].rm_eo - matches[i].rm_so)};
    return found != condition->negated;
}

/* True when every condition of the rule holds; captures is then filled. */
static bool fits(const struct rule *rule, const struct prompt_view *view, const char *lora,
                 struct captures *captures) {
    *captures = (struct captures){0};
    if (rule->lora && strcmp(rule->lora, lora ? lora : "") != 0) return false;
    if (view->results < rule->results_at_least || view->results > rule->results_at_most) return false;
    for (size_t i = 0; i < rule->condition_count; i++)
        if (!holds(&rule->conditions[i], view, captures)) return false;
    return true;
}

/* Appends a call's arguments as the project's XML: text as it is, other values as JSON. */
static void put_xml_arguments(struct draft *draft, const struct json *arguments) {
    for (const struct json *item = arguments->child; item; item = item->next) {
        struct buf value = {0};
        put(draft, "  <argument name=\"");
        put_plain(draft, item->key, item->key_len);
        put(draft, "\">");
        if (item->type == JSON_STRING)
            buf_put(&value, item->text, item->len);
        else
            json_write(&value, item);
        put_plain(draft, buf_text(&value), value.len);
        put(draft, "</argument>\n");
        buf_free(&value);
    }
}

/* Appends one call in the script's syntax. */
static void put_call(struct draft *draft, enum call_syntax syntax, const struct action *action,
                     const struct captures *captures) {
    static const char *const openers[] = {"<tool_call>\n{\"name\": \"", "[TOOL_CALL]{\"name\": \"",
                                          "<tool_call name=\""};
    static const char *const closers[] = {"}\n</tool_call>", "}[END_TOOL_CALL]", "</tool_call>"};
    struct buf arguments = {0}, ignored = {0};
    placeholders_fill(action->arguments, PLACEHOLDERS_IN_JSON, captures, &arguments, NULL);
    put(draft, openers[syntax]);
    put(draft, action->text);
    if (syntax == CALLS_PROJECT_XML) {
        struct json_document *doc = json_parse(buf_text(&arguments), arguments.len, &ignored);
        put(draft, "\">\n");
        if (doc) put_xml_arguments(draft, json_root(doc));
        json_free(doc);
    } else {
        put(draft, "\", \"arguments\": ");
        put_plain(draft, buf_text(&arguments), arguments.len);
    }
    put(draft, closers[syntax]);
    buf_free(&arguments);
    buf_free(&ignored);
}

/* Appends all actions of one kind, one per line; returns how many there were. */
static int put_actions(struct draft *draft, const struct script *script, const struct rule *rule,
                       enum action_kind kind, const struct captures *captures) {
    int count = 0;
    for (size_t i = 0; i < rule->action_count; i++) {
        const struct action *action = &rule->actions[i];
        if (action->kind != kind) continue;
        if (count++) put(draft, "\n");
        if (kind == ACTION_CALL)
            put_call(draft, script->call_syntax, action, captures);
        else
            placeholders_fill(action->text, PLACEHOLDERS_IN_TEXT, captures, &draft->text, &draft->plain);
    }
    return count;
}

/* True when the rule has an action of the kind. */
static bool has(const struct rule *rule, enum action_kind kind) {
    for (size_t i = 0; i < rule->action_count; i++)
        if (rule->actions[i].kind == kind) return true;
    return false;
}

/* Writes what the rule says: thinking (unless the prompt closed it), then text, then calls. */
static void write_rule(struct draft *draft, const struct script *script, const struct rule *rule,
                       const struct prompt_view *view, const struct captures *captures) {
    bool thinks = has(rule, ACTION_THINK) && view->thinking != THINKING_CLOSED;
    if (thinks && view->thinking == THINKING_FREE) put(draft, "<think>\n");
    if (thinks) put_actions(draft, script, rule, ACTION_THINK, captures);
    if (thinks || view->thinking == THINKING_OPENED) put(draft, "\n</think>\n\n");
    bool said = put_actions(draft, script, rule, ACTION_SAY, captures) > 0;
    if (said && has(rule, ACTION_CALL)) put(draft, "\n");
    put_actions(draft, script, rule, ACTION_CALL, captures);
}

/* Weighs a reranker's two answers, so that the softmax over their logits is the relevance of $2 to $1; says the
 * likelier one when the rule has nothing else to say. */
static void rank(struct draft *draft, const struct script *script, const struct rule *rule,
                 const struct captures *captures, struct token_values *values) {
    const struct capture *query = &captures->user[1], *document = &captures->user[2];
    double share = relevance(query->text, query->len, document->text, document->len);
    token_values_put(values, vocabulary_find(script->vocabulary, rule->rank_yes), RANK_LOGIT + log(share));
    token_values_put(values, vocabulary_find(script->vocabulary, rule->rank_no), RANK_LOGIT + log(1 - share));
    if (!draft->text.len) put(draft, share > 0.5 ? rule->rank_yes : rule->rank_no);
}

/* Collects what the rule wants of the logits. */
static void weigh(struct draft *draft, const struct script *script, const struct rule *rule,
                  const struct captures *captures, struct token_values *values) {
    if (rule->rank_yes) rank(draft, script, rule, captures, values);
    for (size_t i = 0; i < rule->logit_count; i++)
        token_values_put(values, vocabulary_find(script->vocabulary, rule->logits[i].token), rule->logits[i].value);
}

static bool is_white(char c) { return c == ' ' || c == '\n' || c == '\t'; }

/* Returns how much of the answer the prompt holds already; 0 unless the answer begins so, white space aside. */
static size_t begun(const struct draft *draft, const struct prompt_view *view) {
    const char *text = buf_text(&draft->text), *at = text, *held = view->begun;
    size_t len = strlen(held);
    if (len <= draft->text.len && memcmp(held, text, len) == 0) return len;
    while (*held) {
        while (is_white(*held)) held++;
        while (*held && is_white(*at)) at++;
        if (*held && *held++ != *at++) return 0;
    }
    return (size_t)(at - text);
}

/* See answer.h. */
const struct rule *answer_compose(const struct script *script, const struct prompt_view *view, const char *lora,
                                  struct ids *out, struct token_values *values) {
    struct draft draft = {0};
    struct captures captures;
    const struct rule *chosen = NULL;
    for (size_t i = 0; i < script->rule_count && !chosen; i++)
        if (fits(&script->rules[i], view, lora, &captures)) chosen = &script->rules[i];
    if (chosen) {
        write_rule(&draft, script, chosen, view, &captures);
        weigh(&draft, script, chosen, &captures, values);
    } else {
        put(&draft, "(emulated model: no rule of the script fits this prompt)");
    }
    size_t from = begun(&draft, view);
    vocabulary_encode(script->vocabulary, buf_text(&draft.text) + from, draft.text.len - from,
                      buf_text(&draft.plain) + from, out);
    buf_free(&draft.text);
    buf_free(&draft.plain);
    return chosen;
}
