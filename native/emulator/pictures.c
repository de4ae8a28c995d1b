/* pictures.c: see pictures.h.
 *
 * Rows of the emulated librknnrt.so (encoder_rows.h) become words such as "red above, blue below", rows of any other
 * encoder none. Rows that are not those of one picture in their order become words about that, so that a program that
 * mixes them up has a wrong answer. Grey cells at the edges are what a program fills a square up with. */

#include "pictures.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "encoder_rows.h"

/* As many pictures as a long test sends; the oldest is forgotten. */
#define MOST_PICTURES 256
#define GREY 0.5f

struct colour {
    const char *name;
    float red, green, blue;
};

static const struct colour palette[] = {
    {"black", 0, 0, 0},          {"white", 1, 1, 1},          {"grey", GREY, GREY, GREY},
    {"red", 0.86f, 0.1f, 0.1f},  {"green", 0.1f, 0.65f, 0.15f}, {"blue", 0.1f, 0.15f, 0.85f},
    {"yellow", 1, 0.9f, 0.1f},   {"orange", 1, 0.55f, 0},     {"purple", 0.5f, 0.1f, 0.6f},
    {"brown", 0.5f, 0.3f, 0.15f}, {"turquoise", 0.1f, 0.8f, 0.8f},
};

/* The cells of a picture: a row of numbers for each. */
struct cells {
    const float *rows;
    size_t step; /* floats from one cell to the next */
    size_t top, bottom, left, right, columns;
};

static const float *cell(const struct cells *c, size_t line, size_t column) {
    return c->rows + (line * c->columns + column) * c->step;
}

static bool is_padding(const float *row) {
    for (int i = ROW_RED; i <= ROW_BLUE; i++)
        if (fabsf(row[i] - GREY) > 0.01f) return false;
    return true;
}

/* Returns what is wrong with rows: NULL for those of one picture in order. */
static const char *fault_of(const float *rows, size_t tokens, size_t outputs, size_t width) {
    for (size_t token = 0; token < tokens; token++)
        for (size_t output = 0; output < outputs; output++) {
            const float *row = rows + (token * outputs + output) * width;
            if (row[ROW_MARK] != ROW_MARK_VALUE) return "noise";
            if ((size_t)row[ROW_OUTPUTS] != outputs) return "rows of another number of outputs";
            if ((size_t)(row[ROW_LINES] * row[ROW_COLUMNS]) != tokens) return "rows of another number of tokens";
            if ((size_t)row[ROW_CELL] != token || (size_t)row[ROW_OUTPUT] != output) return "rows in a wrong order";
        }
    return NULL;
}

/* Leaves out lines and columns at the edges that are padding; a picture that is all grey stays whole. */
static void trim(struct cells *c) {
    struct cells all = *c;
    for (bool grey = true; c->top < c->bottom && grey; c->top += grey)
        for (size_t i = c->left; i < c->right; i++) grey = grey && is_padding(cell(c, c->top, i));
    for (bool grey = true; c->bottom > c->top && grey; c->bottom -= grey)
        for (size_t i = c->left; i < c->right; i++) grey = grey && is_padding(cell(c, c->bottom - 1, i));
    for (bool grey = true; c->left < c->right && grey; c->left += grey)
        for (size_t i = c->top; i < c->bottom; i++) grey = grey && is_padding(cell(c, i, c->left));
    for (bool grey = true; c->right > c->left && grey; c->right -= grey)
        for (size_t i = c->top; i < c->bottom; i++) grey = grey && is_padding(cell(c, i, c->right - 1));
    if (c->top >= c->bottom || c->left >= c->right) *c = all;
}

/* Returns the name of the mean colour of some lines and columns. */
static const char *colour_of(const struct cells *c, size_t top, size_t bottom, size_t left, size_t right) {
    float mean[3] = {0}, least = 10;
    const char *name = "";
    for (size_t y = top; y < bottom; y++)
        for (size_t x = left; x < right; x++)
            for (int i = 0; i < 3; i++)
                mean[i] += cell(c, y, x)[ROW_RED + i] / (float)((bottom - top) * (right - left));
    for (size_t i = 0; i < sizeof palette / sizeof *palette; i++) {
        float r = mean[0] - palette[i].red, g = mean[1] - palette[i].green, b = mean[2] - palette[i].blue;
        if (r * r + g * g + b * b < least) least = r * r + g * g + b * b, name = palette[i].name;
    }
    return name;
}

/* Appends what the cells show: one colour, or those of two halves. */
static void describe(const struct cells *c, struct buf *out) {
    size_t lines = c->bottom - c->top, columns = c->right - c->left;
    size_t half_line = lines / 2 ? lines / 2 : 1, half_column = columns / 2 ? columns / 2 : 1;
    const char *above = colour_of(c, c->top, c->top + half_line, c->left, c->right);
    const char *below = colour_of(c, c->bottom - half_line, c->bottom, c->left, c->right);
    const char *left = colour_of(c, c->top, c->bottom, c->left, c->left + half_column);
    const char *right = colour_of(c, c->top, c->bottom, c->right - half_column, c->right);
    if (strcmp(above, below) != 0)
        buf_printf(out, "%s above, %s below", above, below);
    else if (strcmp(left, right) != 0)
        buf_printf(out, "%s on the left, %s on the right", left, right);
    else
        buf_puts(out, above);
}

/* Remembers a picture whose rows became these ids; those of the same token follow each other. */
void pictures_put(struct pictures *pictures, const int32_t *ids, size_t tokens, const float *rows, size_t outputs,
                  size_t width) {
    if (width < ROW_LEAST_WIDTH || rows[ROW_MARK] != ROW_MARK_VALUE || pictures_find(pictures, ids, tokens)) return;
    if (pictures->count == MOST_PICTURES) {
        ids_free(&pictures->list[0].ids);
        free(pictures->list[0].shown);
        memmove(pictures->list, pictures->list + 1, --pictures->count * sizeof *pictures->list);
    }
    struct picture new = {0};
    struct buf words = {0};
    const char *fault = fault_of(rows, tokens, outputs, width);
    size_t lines = (size_t)rows[ROW_LINES], columns = (size_t)rows[ROW_COLUMNS];
    struct cells c = {rows, outputs * width, 0, lines, 0, columns, columns};
    if (!fault) trim(&c);
    if (fault)
        buf_puts(&words, fault);
    else
        describe(&c, &words);
    ids_append(&new.ids, ids, tokens);
    new.shown = mem_string(buf_text(&words));
    buf_free(&words);
    pictures->list = mem_grow(pictures->list, (pictures->count + 1) * sizeof *pictures->list);
    pictures->list[pictures->count++] = new;
}

/* Returns the picture with which ids begin, or NULL. */
const struct picture *pictures_find(const struct pictures *pictures, const int32_t *ids, size_t count) {
    for (size_t i = pictures->count; i-- > 0;) {
        const struct ids *each = &pictures->list[i].ids;
        if (each->len <= count && memcmp(each->data, ids, each->len * sizeof *ids) == 0) return &pictures->list[i];
    }
    return NULL;
}

/* Frees the list and empties it. */
void pictures_free(struct pictures *pictures) {
    for (size_t i = 0; i < pictures->count; i++) {
        ids_free(&pictures->list[i].ids);
        free(pictures->list[i].shown);
    }
    free(pictures->list);
    *pictures = (struct pictures){0};
}
