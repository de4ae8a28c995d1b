/* chat.c: puts the text of a PROMPT input into the model's chat template.
 *
 * The composition is system + prefix + text + postfix, nothing added (rknn-llm #431). With declared tools the
 * system part is its own turn with a tools section in the manner of Qwen; the vendor documents neither its
 * bytes nor how an input of role "tool" finds the turns before it, so what follows is this project's choice. */

#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "model.h"

#define DEFAULT_RESULT_TAG "tool_response"

/* True for an input whose text is the result of a tool. */
bool chat_is_tool_input(const RKLLMInput *input) {
#if RKLLM_ABI >= 121
    return input->input_type == RKLLM_INPUT_PROMPT && input->role && strcmp(input->role, "tool") == 0;
#else
    (void)input;
    return false;
#endif
}

/* True when the input asks for thinking; families without the field cannot. */
static bool wants_thinking(const RKLLMInput *input) {
#if RKLLM_ABI >= 121
    return input->enable_thinking;
#else
    (void)input;
    return true;
#endif
}

/* Returns the text a fresh prompt begins with, owned by the model; "" when none exists. */
const char *chat_system(const struct model *m) {
    if (m->chat.replaced) return m->chat.system;
    if (m->chat.has_tools) return m->chat.tools_system;
    return m->script->chat.system;
}

/* Appends one tool result between its tags. */
static void put_result(struct buf *out, const char *tag, const char *text, size_t len, bool first) {
    buf_printf(out, "%s<%s>\n", first ? "" : "\n", tag);
    buf_put(out, text, len);
    buf_printf(out, "\n</%s>", tag);
}

/* Appends the results in text: the elements of a JSON array, or the text as it is. */
static void put_results(struct buf *out, const char *tag, const char *text) {
    struct buf ignored = {0};
    struct json_document *doc = json_parse(text, strlen(text), &ignored);
    const struct json *root = doc ? json_root(doc) : NULL;
    if (root && root->type == JSON_ARRAY) {
        for (const struct json *item = root->child; item; item = item->next) {
            struct buf value = {0};
            if (item->type == JSON_STRING)
                buf_put(&value, item->text, item->len);
            else
                json_write(&value, item);
            put_result(out, tag, buf_text(&value), value.len, item == root->child);
            buf_free(&value);
        }
    } else {
        put_result(out, tag, text, strlen(text), true);
    }
    json_free(doc);
    buf_free(&ignored);
}

/* Appends the whole text of a prompt for the text of an input. When it continues a conversation the system part is
 * left out, being there already. */
void chat_render(const struct model *m, const RKLLMInput *input, const char *prompt, bool continues,
                 struct buf *out) {
    const struct chat_template *built_in = &m->script->chat;
    bool replaced = m->chat.replaced;
    if (!continues) buf_puts(out, chat_system(m));
    buf_puts(out, replaced ? m->chat.prefix : built_in->prefix);
    if (chat_is_tool_input(input))
        put_results(out, m->chat.result_tag ? m->chat.result_tag : DEFAULT_RESULT_TAG, prompt);
    else
        buf_puts(out, prompt);
    buf_puts(out, replaced ? m->chat.postfix : built_in->postfix);
    if (!replaced && !wants_thinking(input)) buf_puts(out, built_in->no_thinking);
}

/* Replaces an owned string by a copy; NULL becomes "". */
static void set(char **slot, const char *text) {
    free(*slot);
    *slot = mem_string(text ? text : "");
}

/* Installs a caller's template and switches the built-in one off, with thinking and tools. NULLs count as "". */
void chat_replace(struct chat_state *chat, const char *system, const char *prefix, const char *postfix) {
    set(&chat->system, system);
    set(&chat->prefix, prefix);
    set(&chat->postfix, postfix);
    chat->replaced = true;
}

/* Writes the system turn of a prompt with tools: one JSON object per line. */
static void write_tools_system(const struct chat_template *template, const char *system, const struct json *tools,
                               struct buf *out) {
    buf_puts(out, template->system_open);
    if (system && *system) buf_printf(out, "%s\n\n", system);
    buf_puts(out, "# Tools\n\nThese functions can be called:\n<tools>");
    for (const struct json *tool = tools->child; tool; tool = tool->next) {
        buf_putc(out, '\n');
        json_write(out, tool);
    }
    buf_puts(out, "\n</tools>\n\nA call is one JSON object inside its own tags:\n<tool_call>\n"
                  "{\"name\": <name>, \"arguments\": <object>}\n</tool_call>");
    buf_puts(out, template->system_close);
}

/* Declares tools; false when the list is not a JSON array. A NULL or empty result_tag means the usual one. */
bool chat_set_tools(struct chat_state *chat, const struct chat_template *template, const char *system,
                    const char *tools, const char *result_tag) {
    struct buf ignored = {0}, text = {0};
    struct json_document *doc = tools ? json_parse(tools, strlen(tools), &ignored) : NULL;
    bool good = doc && json_root(doc)->type == JSON_ARRAY;
    if (good) {
        write_tools_system(template, system, json_root(doc), &text);
        set(&chat->tools_system, buf_text(&text));
        set(&chat->result_tag, result_tag && *result_tag ? result_tag : DEFAULT_RESULT_TAG);
        chat->has_tools = true;
    }
    json_free(doc);
    buf_free(&ignored);
    buf_free(&text);
    return good;
}

/* Frees what the chat state owns. */
void chat_free(struct chat_state *chat) {
    free(chat->system);
    free(chat->prefix);
    free(chat->postfix);
    free(chat->tools_system);
    free(chat->result_tag);
}
