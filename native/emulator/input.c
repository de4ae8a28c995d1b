/* input.c: what a call brings, checked and turned into token ids. */

#include <string.h>

#include "console.h"
#include "model.h"

/* Checks that ids are given and that the vocabulary has them all. */
static bool check_tokens(const struct model *m, const RKLLMTokenInput *input) {
    if (!input->input_ids || !input->n_tokens) {
        console_line('E', "the token input is empty!");
        return false;
    }
    for (size_t i = 0; i < input->n_tokens; i++)
        if (!vocabulary_has(m->script->vocabulary, input->input_ids[i])) {
            console_line('E', "token id %d at position %zu is outside the vocabulary of %zu!", input->input_ids[i], i,
                         vocabulary_size(m->script->vocabulary));
            return false;
        }
    return true;
}

/* Checks the kind of input and that it holds something; false, with a line printed, when it does not. */
bool input_check(const struct model *m, const RKLLMInput *input) {
    switch (input->input_type) {
    case RKLLM_INPUT_PROMPT:
        if (!input->prompt_input) console_line('E', "the prompt input is NULL!");
        return input->prompt_input != NULL;
    case RKLLM_INPUT_TOKEN: return check_tokens(m, &input->token_input);
    case RKLLM_INPUT_EMBED:
        if (input->embed_input.embed && input->embed_input.n_tokens) return true;
        console_line('E', "the embedding input is empty!");
        return false;
    case RKLLM_INPUT_MULTIMODAL: return media_check(m, &input->multimodal_input);
    }
    console_line('E', "input type %d is not known!", (int)input->input_type);
    return false;
}

/* Returns the id that a row of numbers represents, and lets the weights remember the row of a picture. */
int32_t input_row(const struct model *m, const float *row) {
    int32_t id = values_of_picture(row, (size_t)m->script->hidden, vocabulary_size(m->script->vocabulary));
    if (id < 0 && m->weights) weights_keep_row(m->weights, id, row);
    return id;
}

/* Appends the tokens that the rows of an embedding represent. */
static void read_embedding(const struct model *m, const RKLLMEmbedInput *input, struct sequence *entry,
                           struct ids *out) {
    size_t width = (size_t)m->script->hidden;
    for (size_t i = 0; i < input->n_tokens; i++) {
        int32_t id = input_row(m, input->embed + i * width);
        if (id < 0) entry->pictures++;
        ids_put(out, id);
    }
}

/* Appends the ids of a checked input. Text is put into the template first and kept in text; the tokens of pictures
 * are counted in entry. False, with a line printed, when the host's tokenizer fails. */
bool input_read(const struct model *m, const RKLLMInput *input, bool continues, struct buf *text,
                struct sequence *entry, struct ids *out) {
    switch (input->input_type) {
    case RKLLM_INPUT_TOKEN:
        ids_append(out, input->token_input.input_ids, input->token_input.n_tokens);
        return true;
    case RKLLM_INPUT_EMBED: read_embedding(m, &input->embed_input, entry, out); return true;
    case RKLLM_INPUT_MULTIMODAL: return media_read(m, input, continues, text, entry, out);
    case RKLLM_INPUT_PROMPT: break;
    }
    chat_render(m, input, input->prompt_input, continues, text);
    return host_encode(m, buf_text(text), text->len, out);
}
