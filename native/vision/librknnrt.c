/* librknnrt.c: the emulated librknnrt.so, which runs vision encoders.
 *
 * A model is a text (native/README.md has its lines): size of the input, tokens, width and number of outputs. Its
 * output says what the picture shows, the mean colours of each cell (encoder_rows.h), so that the emulated
 * librkllmrt.so notices wrong order, colours, size or interleaving. A context belongs to one thread at a time. */

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "encoder_rows.h"
#include "rknn_abi.h"

#define API __attribute__((visibility("default")))
#define MAGIC "RKNN-EMULATOR 1"
#define VERSION "2.3.2"
#define DRIVER "0.9.8"
#define LONGEST_MODEL (1 << 20)
#define MOST_OUTPUTS 8
#define MOST_CONTEXTS 16
#define NPU_CORES 3

/* Read from the file, as for the real library; the compiler must not drop it. */
__attribute__((used)) static const char marker[] = "librknnrt version: " VERSION " (emulator of rkllm-mcp, no NPU)";

/* Where the library throws a C++ exception, which ends a program that is not written in C++. */
enum throws { THROWS_NEVER, THROWS_AT_INIT, THROWS_AT_INPUTS, THROWS_AT_RUN, THROWS_AT_OUTPUTS };

struct faults {
    bool too_old, out_of_memory, run_fails, hangs;
    enum throws throws;
};

struct encoder {
    uint32_t height, width; /* of the input, pixels */
    uint32_t lines, columns; /* cells; lines * columns is the number of tokens */
    uint32_t row;            /* floats per token and output */
    uint32_t outputs;
    double seconds; /* of a run on all cores */
    char platform[32];
    struct faults faults;
};

struct context {
    bool open;
    struct encoder encoder;
    int32_t core_mask;
    uint8_t *pixels; /* of the input: height * width * 3 */
    bool has_input, has_run;
    int64_t run_us;
    uint32_t unreleased; /* outputs that were got and not released */
};

static struct context contexts[MOST_CONTEXTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Appends an object to $RKNN_EMULATOR_LOG: the call, its context, further members as JSON, its status, which it
 * returns. */
__attribute__((format(printf, 4, 5))) static int logged(const char *call, rknn_context context, int status,
                                                        const char *format, ...) {
    const char *path = getenv("RKNN_EMULATOR_LOG");
    char members[512], line[768];
    va_list args;
    if (!path || !*path) return status;
    va_start(args, format);
    vsnprintf(members, sizeof members, format, args);
    va_end(args);
    snprintf(line, sizeof line, "{\"call\": \"%s\", \"context\": %llu, \"pid\": %ld%s%s, \"return\": %d}\n", call,
             (unsigned long long)context, (long)getpid(), *members ? ", " : "", members, status);
    FILE *file = fopen(path, "a");
    if (!file) return status;
    fputs(line, file); /* one write, so that lines of several processes do not mix */
    fclose(file);
    return status;
}

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints a line as the runtime does. */
static void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("E RKNN: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

/* Ends the process as an exception that crosses a program's C frames does. */
static void throw_here(const struct encoder *encoder, enum throws at) {
    if (encoder->faults.throws != at) return;
    fputs("terminate called after throwing an instance of 'std::out_of_range'\n", stderr);
    signal(SIGABRT, SIG_DFL);
    abort();
}

/* --- the text of a model --- */

static bool apply_fault(struct faults *f, const char *words) {
    static const struct {
        const char *words;
        enum throws throws;
    } places[] = {{"throw at init", THROWS_AT_INIT},
                  {"throw at inputs", THROWS_AT_INPUTS},
                  {"throw at run", THROWS_AT_RUN},
                  {"throw at outputs", THROWS_AT_OUTPUTS}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (strcmp(words, places[i].words) == 0) return f->throws = places[i].throws, true;
    if (strcmp(words, "too-old") == 0) return f->too_old = true;
    if (strcmp(words, "out-of-memory") == 0) return f->out_of_memory = true;
    if (strcmp(words, "run-fails") == 0) return f->run_fails = true;
    if (strcmp(words, "hang") == 0) return f->hangs = true;
    return false;
}

/* Reads one line; false when it is not one. */
static bool read_line(struct encoder *e, char *line, uint32_t *tokens) {
    char end;
    if (!*line || *line == '#') return true;
    if (sscanf(line, "input %u %u %c", &e->height, &e->width, &end) == 2) return true;
    if (sscanf(line, "tokens %u %c", tokens, &end) == 1) return true;
    if (sscanf(line, "cells %u %u %c", &e->lines, &e->columns, &end) == 2) return true;
    if (sscanf(line, "width %u %c", &e->row, &end) == 1) return true;
    if (sscanf(line, "outputs %u %c", &e->outputs, &end) == 1) return true;
    if (sscanf(line, "seconds %lf %c", &e->seconds, &end) == 1) return true;
    if (sscanf(line, "platform %31s %c", e->platform, &end) == 1) return true;
    if (strncmp(line, "toolkit ", 8) == 0) return true; /* for readers of the file */
    return strncmp(line, "fault ", 6) == 0 && apply_fault(&e->faults, line + 6);
}

/* Gives the cells of a number of tokens: a square if it is one, else a line. */
static void arrange(struct encoder *e, uint32_t tokens) {
    uint32_t side = 1;
    if (e->lines) return;
    while (side * side < tokens) side++;
    e->lines = side * side == tokens ? side : 1;
    e->columns = tokens / e->lines;
}

static bool is_sound(const struct encoder *e, uint32_t tokens) {
    return e->height && e->width && e->height <= 4096 && e->width <= 4096 && tokens && e->lines && e->columns &&
           e->lines <= e->height && e->columns <= e->width && (uint64_t)e->lines * e->columns == tokens &&
           e->row >= ROW_LEAST_WIDTH && e->row <= 16384 && e->outputs && e->outputs <= MOST_OUTPUTS;
}

/* Reads the text of a model, which is changed; 0, or the status of rknn_init. */
static int read_model(struct encoder *e, char *text) {
    uint32_t tokens = 0;
    char *faults = getenv("RKNN_EMULATOR_FAULTS"), *rest = NULL;
    *e = (struct encoder){.outputs = 1, .platform = "rk3588"};
    if (strncmp(text, MAGIC, strlen(MAGIC)) != 0) {
        say("invalid model: it does not begin with '" MAGIC "'");
        return RKNN_ERR_MODEL_INVALID;
    }
    int number = 0;
    for (char *line = strtok_r(text, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest))
        if (number++ && !read_line(e, line, &tokens)) {
            say("invalid model: '%s' is no line of an emulated encoder", line);
            return RKNN_ERR_MODEL_INVALID;
        }
    char *words = faults && *faults ? strdup(faults) : NULL;
    for (char *word = words ? strtok_r(words, ";", &rest) : NULL; word; word = strtok_r(NULL, ";", &rest)) {
        word += strspn(word, " ");
        if (*word && !apply_fault(&e->faults, word)) say("there is no fault '%s'", word);
    }
    free(words);
    if (e->lines && !tokens) tokens = e->lines * e->columns;
    arrange(e, tokens);
    if (is_sound(e, tokens)) return RKNN_SUCC;
    say("invalid model: input, tokens, cells, width and outputs do not fit each other");
    return RKNN_ERR_MODEL_INVALID;
}

/* Returns the text of a model at a path or in memory, which the caller frees; NULL when none exists. */
static char *load_text(const void *model, uint32_t size) {
    char *text = calloc(1, LONGEST_MODEL + 1);
    if (!text || !model) return free(text), NULL;
    if (size) return memcpy(text, model, size < LONGEST_MODEL ? size : LONGEST_MODEL), text;
    FILE *file = fopen(model, "rb");
    if (!file) {
        say("failed to open model: %s", (const char *)model);
        return free(text), NULL;
    }
    size_t count = fread(text, 1, LONGEST_MODEL, file);
    fclose(file);
    return count ? text : (free(text), NULL);
}

static const char *board(void) {
    const char *named = getenv("RKLLM_EMULATOR_PLATFORM");
    return named && *named ? named : "RK3588";
}

/* What the board and the faults have against a model: 0, or the status of rknn_init. */
static int refusal(const struct encoder *e) {
    if (e->faults.too_old) {
        say("6, 1");
        say("Invalid RKNN model version 6");
        return RKNN_ERR_MODEL_INVALID;
    }
    if (strcasecmp(e->platform, board()) != 0) {
        say("the model is built for %s and this board is %s", e->platform, board());
        return RKNN_ERR_TARGET_PLATFORM_UNMATCH;
    }
    if (e->faults.out_of_memory) {
        say("failed to allocate handle, ret: -1, errno: 12, errstr: Cannot allocate memory");
        return RKNN_ERR_MALLOC_FAIL;
    }
    return RKNN_SUCC;
}

/* --- contexts --- */

/* Returns the context of a number, or NULL. */
static struct context *find(rknn_context number) {
    return number && number <= MOST_CONTEXTS && contexts[number - 1].open ? &contexts[number - 1] : NULL;
}

/* Opens a context for an encoder; 0 when there are too many. */
static rknn_context open_context(const struct encoder *encoder) {
    rknn_context number = 0;
    pthread_mutex_lock(&lock);
    for (rknn_context i = 1; i <= MOST_CONTEXTS && !number; i++)
        if (!contexts[i - 1].open) number = i;
    uint8_t *pixels = number ? calloc((size_t)encoder->height * encoder->width, 3) : NULL;
    if (pixels) contexts[number - 1] = (struct context){.open = true, .encoder = *encoder, .pixels = pixels};
    pthread_mutex_unlock(&lock);
    return pixels ? number : 0;
}

API int rknn_init(rknn_context *context, void *model, uint32_t size, uint32_t flag, void *extend) {
    struct encoder encoder;
    (void)extend;
    if (!context || !model) return logged("rknn_init", 0, RKNN_ERR_PARAM_INVALID, "\"flag\": %u", flag);
    char *text = load_text(model, size);
    int status = text ? read_model(&encoder, text) : RKNN_ERR_MODEL_INVALID;
    free(text);
    if (!status) throw_here(&encoder, THROWS_AT_INIT);
    if (!status) status = refusal(&encoder);
    if (!status) {
        printf("I RKNN: RKNN Runtime Information, %s\n", marker);
        printf("I RKNN: RKNN Driver Information, version: " DRIVER "\n");
        fflush(stdout);
        *context = open_context(&encoder);
        status = *context ? RKNN_SUCC : RKNN_ERR_MALLOC_FAIL;
    }
    return logged("rknn_init", status ? 0 : *context, status, "\"flag\": %u", flag);
}

API int rknn_dup_context(rknn_context *from, rknn_context *to) {
    struct context *context = from ? find(*from) : NULL;
    if (!context || !to) return logged("rknn_dup_context", 0, RKNN_ERR_CTX_INVALID, "%s", "");
    *to = open_context(&context->encoder);
    return logged("rknn_dup_context", *to, *to ? RKNN_SUCC : RKNN_ERR_MALLOC_FAIL, "%s", "");
}

API int rknn_destroy(rknn_context number) {
    struct context *context = find(number);
    if (!context) return logged("rknn_destroy", number, RKNN_ERR_CTX_INVALID, "%s", "");
    uint32_t unreleased = context->unreleased;
    pthread_mutex_lock(&lock);
    free(context->pixels);
    *context = (struct context){0};
    pthread_mutex_unlock(&lock);
    return logged("rknn_destroy", number, RKNN_SUCC, "\"unreleased\": %u", unreleased);
}

/* --- queries --- */

static uint32_t output_floats(const struct encoder *e) { return e->lines * e->columns * e->row; }

static void fill_attr(rknn_tensor_attr *attr, const char *name, const uint32_t *dims, uint32_t n_dims, int32_t fmt) {
    uint32_t index = attr->index;
    *attr = (rknn_tensor_attr){.index = index, .n_dims = n_dims, .n_elems = 1, .fmt = fmt, .scale = 1};
    attr->type = RKNN_TENSOR_FLOAT16;
    snprintf(attr->name, sizeof attr->name, "%s", name);
    for (uint32_t i = 0; i < n_dims; i++) attr->n_elems *= attr->dims[i] = dims[i];
    attr->size = attr->size_with_stride = attr->n_elems * 2;
}

static int query_attr(const struct encoder *e, bool is_input, rknn_tensor_attr *attr) {
    const uint32_t input[] = {1, e->height, e->width, 3}, output[] = {1, e->lines * e->columns, e->row};
    if (attr->index >= (is_input ? 1 : e->outputs)) return RKNN_ERR_PARAM_INVALID;
    char name[32];
    snprintf(name, sizeof name, is_input ? "pixel" : "embedding%u", attr->index);
    if (is_input)
        fill_attr(attr, name, input, 4, RKNN_TENSOR_NHWC);
    else
        fill_attr(attr, name, output, 3, RKNN_TENSOR_UNDEFINED);
    return RKNN_SUCC;
}

static int query(const struct context *context, int32_t command, void *info, uint32_t size) {
    const struct encoder *e = &context->encoder;
    static const struct {
        int32_t command;
        uint32_t size;
    } sizes[] = {{RKNN_QUERY_IN_OUT_NUM, sizeof(rknn_input_output_num)},
                 {RKNN_QUERY_INPUT_ATTR, sizeof(rknn_tensor_attr)},
                 {RKNN_QUERY_OUTPUT_ATTR, sizeof(rknn_tensor_attr)},
                 {RKNN_QUERY_PERF_RUN, sizeof(rknn_perf_run)},
                 {RKNN_QUERY_SDK_VERSION, sizeof(rknn_sdk_version)},
                 {RKNN_QUERY_MEM_SIZE, sizeof(rknn_mem_size)}};
    bool fits = false;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        fits = fits || (sizes[i].command == command && sizes[i].size == size);
    if (!fits || !info) return RKNN_ERR_PARAM_INVALID;
    switch (command) {
    case RKNN_QUERY_IN_OUT_NUM: *(rknn_input_output_num *)info = (rknn_input_output_num){1, e->outputs}; break;
    case RKNN_QUERY_INPUT_ATTR: return query_attr(e, true, info);
    case RKNN_QUERY_OUTPUT_ATTR: return query_attr(e, false, info);
    case RKNN_QUERY_PERF_RUN: ((rknn_perf_run *)info)->run_duration = context->run_us; break;
    case RKNN_QUERY_SDK_VERSION: {
        rknn_sdk_version *version = info;
        snprintf(version->api_version, sizeof version->api_version, VERSION " (emulator of rkllm-mcp, no NPU)");
        snprintf(version->drv_version, sizeof version->drv_version, DRIVER);
        break;
    }
    default: memset(info, 0, size); break; /* no memory of the NPU is used */
    }
    return RKNN_SUCC;
}

API int rknn_query(rknn_context number, int32_t command, void *info, uint32_t size) {
    struct context *context = find(number);
    int status = context ? query(context, command, info, size) : RKNN_ERR_CTX_INVALID;
    return logged("rknn_query", number, status, "\"command\": %d", command);
}

API int rknn_set_core_mask(rknn_context number, int32_t mask) {
    struct context *context = find(number);
    bool known = mask == 0 || mask == 1 || mask == 2 || mask == 4 || mask == 3 || mask == 7 || mask == 0xffff;
    int status = !context ? RKNN_ERR_CTX_INVALID : known ? RKNN_SUCC : RKNN_ERR_PARAM_INVALID;
    if (!status) context->core_mask = mask;
    return logged("rknn_set_core_mask", number, status, "\"mask\": %d", mask);
}

/* --- a run --- */

/* Copies a picture of 8-bit numbers, or of floats from 0 to 255. */
static int take_pixels(struct context *context, const rknn_input *input) {
    size_t count = (size_t)context->encoder.height * context->encoder.width * 3;
    bool is_float = input->type == RKNN_TENSOR_FLOAT32;
    if (input->index || !input->buf || input->pass_through || input->fmt != RKNN_TENSOR_NHWC) {
        say("the input has to be number 0, NHWC, without pass_through");
        return RKNN_ERR_INPUT_INVALID;
    }
    if ((!is_float && input->type != RKNN_TENSOR_UINT8) || input->size != count * (is_float ? 4 : 1)) {
        say("the input has %u bytes where the model takes %zu", input->size, count * (is_float ? 4 : 1));
        return RKNN_ERR_INPUT_INVALID;
    }
    for (size_t i = 0; is_float && i < count; i++) {
        float value = ((const float *)input->buf)[i];
        context->pixels[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
    if (!is_float) memcpy(context->pixels, input->buf, count);
    return RKNN_SUCC;
}

API int rknn_inputs_set(rknn_context number, uint32_t count, rknn_input inputs[]) {
    struct context *context = find(number);
    int status = context ? RKNN_ERR_PARAM_INVALID : RKNN_ERR_CTX_INVALID;
    if (context) throw_here(&context->encoder, THROWS_AT_INPUTS);
    if (context && count == 1 && inputs) status = take_pixels(context, inputs);
    if (!status) context->has_input = true;
    return logged("rknn_inputs_set", number, status, "\"size\": %u", count && inputs ? inputs->size : 0);
}

/* Waits as long as a run takes: longer on fewer cores. */
static void take_time(struct context *context) {
    int cores = context->core_mask == 7 || context->core_mask == 0xffff ? NPU_CORES : context->core_mask == 3 ? 2 : 1;
    double seconds = context->encoder.seconds * NPU_CORES / cores;
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (context->encoder.faults.hangs) pause();
    context->run_us = (int64_t)(seconds * 1e6);
    nanosleep(&left, NULL);
}

API int rknn_run(rknn_context number, void *extend) {
    struct context *context = find(number);
    (void)extend;
    if (!context) return logged("rknn_run", number, RKNN_ERR_CTX_INVALID, "%s", "");
    throw_here(&context->encoder, THROWS_AT_RUN);
    int status = context->encoder.faults.run_fails ? RKNN_ERR_FAIL : RKNN_SUCC;
    if (!context->has_input) status = RKNN_ERR_INPUT_INVALID;
    if (status) say("failed to submit!, op id: 1, op name: Conv, status: %d", status);
    if (!status) take_time(context);
    context->has_run = !status;
    return logged("rknn_run", number, status, "\"mask\": %d", context->core_mask);
}

API int rknn_wait(rknn_context number, void *extend) {
    (void)extend;
    return logged("rknn_wait", number, find(number) ? RKNN_SUCC : RKNN_ERR_CTX_INVALID, "%s", "");
}

/* Writes the row of a cell: its mean colours, and what it is. */
static void write_row(const struct context *context, uint32_t cell, uint32_t output, float *row) {
    const struct encoder *e = &context->encoder;
    uint32_t line = cell / e->columns, column = cell % e->columns;
    uint32_t top = line * e->height / e->lines, bottom = (line + 1) * e->height / e->lines;
    uint32_t left = column * e->width / e->columns, right = (column + 1) * e->width / e->columns;
    double sums[3] = {0};
    for (uint32_t y = top; y < bottom; y++)
        for (uint32_t x = left; x < right; x++)
            for (int c = 0; c < 3; c++) sums[c] += context->pixels[((size_t)y * e->width + x) * 3 + (size_t)c];
    for (int c = 0; c < 3; c++) row[ROW_RED + c] = (float)(sums[c] / ((bottom - top) * (right - left)) / 255);
    row[ROW_MARK] = ROW_MARK_VALUE;
    row[ROW_CELL] = (float)cell;
    row[ROW_OUTPUT] = (float)output;
    row[ROW_OUTPUTS] = (float)e->outputs;
    row[ROW_LINES] = (float)e->lines;
    row[ROW_COLUMNS] = (float)e->columns;
}

/* Fills one output; the buffer is the caller's with is_prealloc, else the library's until it is released. */
static int give_output(struct context *context, rknn_output *output) {
    const struct encoder *e = &context->encoder;
    uint32_t bytes = output_floats(e) * (uint32_t)sizeof(float);
    if (output->index >= e->outputs || !output->want_float) {
        say("output %u: the emulator has outputs 0 to %u, as floats", output->index, e->outputs - 1);
        return RKNN_ERR_OUTPUT_INVALID;
    }
    if (output->is_prealloc && (!output->buf || output->size < bytes)) {
        say("output %u takes %u bytes", output->index, bytes);
        return RKNN_ERR_OUTPUT_INVALID;
    }
    if (!output->is_prealloc) output->buf = malloc(bytes);
    if (!output->buf) return RKNN_ERR_MALLOC_FAIL;
    output->size = bytes;
    memset(output->buf, 0, bytes);
    for (uint32_t cell = 0; cell < e->lines * e->columns; cell++)
        write_row(context, cell, output->index, (float *)output->buf + (size_t)cell * e->row);
    context->unreleased++;
    return RKNN_SUCC;
}

API int rknn_outputs_get(rknn_context number, uint32_t count, rknn_output outputs[], void *extend) {
    struct context *context = find(number);
    (void)extend;
    int status = !context ? RKNN_ERR_CTX_INVALID : outputs ? RKNN_SUCC : RKNN_ERR_PARAM_INVALID;
    if (context) throw_here(&context->encoder, THROWS_AT_OUTPUTS);
    if (!status && (!context->has_run || count > context->encoder.outputs)) status = RKNN_ERR_OUTPUT_INVALID;
    for (uint32_t i = 0; i < count && !status; i++) {
        /* Without is_prealloc only want_float is the caller's; Rockchip's demo leaves every index 0. */
        if (!outputs[i].is_prealloc) outputs[i].index = i;
        status = give_output(context, &outputs[i]);
    }
    return logged("rknn_outputs_get", number, status, "\"count\": %u", count);
}

API int rknn_outputs_release(rknn_context number, uint32_t count, rknn_output outputs[]) {
    struct context *context = find(number);
    if (!context || !outputs) return logged("rknn_outputs_release", number, RKNN_ERR_CTX_INVALID, "%s", "");
    for (uint32_t i = 0; i < count && context->unreleased; i++, context->unreleased--) {
        if (outputs[i].is_prealloc) continue;
        free(outputs[i].buf);
        outputs[i].buf = NULL;
    }
    return logged("rknn_outputs_release", number, RKNN_SUCC, "\"unreleased\": %u", context->unreleased);
}
