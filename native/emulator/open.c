/* open.c: everything rkllm_init checks before there is a model, in the order and with the words of the runtime. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "console.h"
#include "model.h"
#include "source_file.h"

/* The boards that can be emulated ($RKLLM_EMULATOR_PLATFORM; the first without it). */
static const struct board {
    const char *name;
    int cpus;
    int npu_cores;
} boards[] = {{"RK3588", 8, 3}, {"RK3576", 8, 2}, {"RK3562", 4, 1}, {"RV1126B", 4, 1}};

#define DRIVER_VERSION "0.9.8"

/* The runtime warns of an older driver, and goes on (constant of the 1.2.1b1 library). */
#define LEAST_DRIVER "0.9.7"

/* Programs find the version of a runtime by searching the file for this text. It is printed too, at level 2, because
 * linkers drop what nothing refers to. */
static const char version_marker[] =
    "RKLLM SDK (version: " EMULATED_VERSION " | target: Linux | build: emulator of rkllm-mcp, no NPU)";

/* Returns the board the process is to believe it runs on; NULL for a name that no board has. */
static const struct board *find_board(void) {
    const char *wanted = getenv("RKLLM_EMULATOR_PLATFORM");
    if (!wanted || !*wanted) return &boards[0];
    for (size_t i = 0; i < sizeof boards / sizeof *boards; i++)
        if (strcmp(boards[i].name, wanted) == 0) return &boards[i];
    return NULL;
}

/* Returns the mask of the CPUs a default parameter set uses: the big cores of an eight-core board. */
uint32_t open_default_cpus(void) {
    const struct board *board = find_board();
    return board && board->cpus == 4 ? 0x0f : 0xf0;
}

static int count_bits(uint32_t mask) {
    int count = 0;
    for (; mask; mask &= mask - 1) count++;
    return count;
}

/* Prints the list of CPUs in use. */
static void print_cpus(uint32_t mask, int count) {
    struct buf list = {0};
    for (int cpu = 0; cpu < 32; cpu++)
        if (mask & (1u << cpu)) buf_printf(&list, "%s%d", list.len ? ", " : "", cpu);
    console_line('I', "Enabled cpus: [%s]", buf_text(&list));
    console_line('I', "Enabled cpus num: %d", count);
    buf_free(&list);
}

/* Checks the CPUs the caller wants against the board and the model. */
static bool check_cpus(const struct board *board, int npu_cores, const RKLLMExtendParam *extend) {
    uint32_t existing = (1u << board->cpus) - 1;
    int count = extend->enabled_cpus_num;
    if (count_bits(extend->enabled_cpus_mask) != count || (extend->enabled_cpus_mask & ~existing)) {
        console_line('E', "Mismatch between enabled CPUs mask and expected count");
        return false;
    }
    if (count < npu_cores) {
        console_line('E', "The number of enabled CPUs must be greater than or equal to the number of NPU cores.");
        return false;
    }
    print_cpus(extend->enabled_cpus_mask, count);
    return true;
}

/* Compares two dotted versions as strcmp does strings. */
static int compare_versions(const char *left, const char *right) {
    int a[3] = {0}, b[3] = {0};
    sscanf(left, "%d.%d.%d", &a[0], &a[1], &a[2]);
    sscanf(right, "%d.%d.%d", &b[0], &b[1], &b[2]);
    for (int i = 0; i < 3; i++)
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    return 0;
}

/* Reads the script, without a word: its faults say what the runtime prints first. Returns why it has none, to be
 * printed in its turn; "" when there is one. */
static void read_model(struct model *m, const char *path, struct buf *why) {
    int open_errno = 0;
    if (!path) {
        buf_puts(why, "the model path is NULL!");
    } else if (!source_file_starts_with(path, SCRIPT_MAGIC, &open_errno)) {
        if (open_errno)
            buf_printf(why, "failed to open '%s': '%s'", path, strerror(open_errno));
        else
            buf_puts(why, "invalid rkllm model!");
    } else {
        struct buf wrong = {0};
        m->script = script_load(path, &wrong);
        if (!m->script) buf_printf(why, "the emulator's script is wrong: %s", buf_text(&wrong));
        buf_free(&wrong);
    }
}

/* Prints the line every rkllm_init begins with, and what an old driver makes of it. */
static void print_banner(const struct model *m, const struct board *board) {
    const char *driver = *m->faults.driver ? m->faults.driver : DRIVER_VERSION;
    console_line('I', "rkllm-runtime version: %s, rknpu driver version: %s, platform: %s", EMULATED_VERSION, driver,
                 board ? board->name : "UNKNOWN_PLATFORM");
    if (compare_versions(driver, LEAST_DRIVER) < 0)
        console_line('W', "Warning: Your rknpu driver version is too low, please upgrade to %s", LEAST_DRIVER);
}

/* Prints what the file says of itself and checks that this runtime on this board can run it. */
static bool check_model(const struct model *m, const struct board *board, int *npu_cores) {
    const struct script *s = m->script;
    const char *toolkit = *s->toolkit ? s->toolkit : EMULATED_VERSION;
    *npu_cores = s->npu_cores ? s->npu_cores : board->npu_cores;
#if RKLLM_ABI >= 121
    console_line('I', "rkllm-toolkit version: %s, max_context_limit: %d, npu_core_num: %d, target_platform: %s, "
                      "model_dtype: %s", toolkit, s->context_limit, *npu_cores, s->platform, s->dtype);
#else
    console_line('I', "rkllm-toolkit version: %s, max_context_limit: %d, npu_core_num: %d, target_platform: %s",
                 toolkit, s->context_limit, *npu_cores, s->platform);
#endif
    if (compare_versions(toolkit, EMULATED_VERSION) > 0) {
        console_line('E', "The rkllm-runtime version is lower than the rkllm-toolkit version. Please update "
                          "rkllm-runtime to %s or higher.", toolkit);
        return false;
    }
    if (strcmp(s->platform, board->name) != 0) {
        console_line('E', "the model's target_platform does not match the real platform");
        return false;
    }
    return true;
}

/* Checks the numbers the caller chose and keeps them. */
static bool take_settings(struct model *m, const RKLLMParam *param) {
    struct settings *settings = &m->settings;
    int limit = m->script->context_limit;
    settings->max_context = param->max_context_len > 0 ? param->max_context_len : limit;
    settings->max_new_tokens = param->max_new_tokens;
    settings->n_keep = param->n_keep;
    settings->sampling =
        (struct sampling){param->top_k,          param->top_p,             param->temperature,
                          param->repeat_penalty, param->frequency_penalty, param->presence_penalty};
    settings->skip_special = param->skip_special_token;
    settings->is_async = param->is_async;
#if RKLLM_ABI >= 130
    settings->ignore_eos = param->ignore_eos_token;
#endif
    int batch = 1;
#if RKLLM_ABI >= 121
    settings->cross_attn = param->extend_param.use_cross_attn == 1;
    if (param->extend_param.n_batch > 1) batch = param->extend_param.n_batch;
#endif
#if RKLLM_ABI < 130
    settings->marks = (struct image_marks){mem_string(param->img_start), mem_string(param->img_end)};
#endif
    if (settings->max_context > limit) {
        console_line('E', "max_context[%d] must be less than the model's max_context_limit[%d]",
                     settings->max_context, limit);
        return false;
    }
    if (settings->n_keep >= settings->max_context) {
        console_line('E', "The n_keep must be less than the max_context_len");
        return false;
    }
    model_make_batch(m, batch);
    return true;
}

/* Reads what the environment changes: faults and speed. Words that mean nothing are an error. */
static bool take_environment(struct model *m) {
    struct buf why = {0};
    const char *speed = getenv("RKLLM_EMULATOR_SPEED");
    bool good = faults_apply_list(&m->faults, getenv("RKLLM_EMULATOR_FAULTS"), &why);
    if (!good) console_line('E', "RKLLM_EMULATOR_FAULTS: %s", buf_text(&why));
    buf_free(&why);
    if (speed && *speed && !speed_read(speed, &m->speed)) {
        console_line('E', "RKLLM_EMULATOR_SPEED is '%s'; it is written: flat | prefill N decode N | profile NAME",
                     speed);
        good = false;
    }
    return good;
}

/* Prints what level 2 shows of a fresh model. */
static void print_details(const struct model *m) {
    const struct vocabulary *v = m->script->vocabulary;
    struct buf text = {0};
#if RKLLM_ABI < 121
    console_escaped("system_prompt", m->script->chat.system);
    console_escaped("prompt_prefix", m->script->chat.prefix);
    console_escaped("prompt_postfix", m->script->chat.postfix);
#endif
    if (m->console_level < CONSOLE_DETAILS) return;
    console_line('I', "%s", version_marker);
    console_line('I', "vocab_size: %zu", vocabulary_size(v));
    vocabulary_decode(v, m->script->eos.data, 1, &text, NULL);
#if RKLLM_ABI >= 130
    console_line('I', "EOS token[0]: %d '%s'", m->script->eos.data[0], buf_text(&text));
#else
    console_line('I', "EOS token: %d '%s'", m->script->eos.data[0], buf_text(&text));
#endif
    buf_free(&text);
}

/* Prints what can be seen before the model is looked at, and refuses a board or a file that is not one. */
static bool greet(const struct model *m, const struct board *board, const char *path, const struct buf *why) {
    print_banner(m, board);
    if (!board) {
        console_line('E', "Platform error, must be either RK3588, RK3576, RV1126B or RK3562. Your platform is %s",
                     getenv("RKLLM_EMULATOR_PLATFORM"));
        return false;
    }
    if (path) console_line('I', "loading rkllm model from %s", path);
    if (!m->script) console_line('E', "%s", buf_text(why));
    return m->script != NULL;
}

/* Opens the weights that the script names; true when it names none. */
static bool open_weights(struct model *m) {
    struct script *script = m->script;
    struct buf path = {0}, why = {0};
    if (!script->weights) return true;
    path_beside(script->path, script->weights, &path);
    m->weights = weights_open(buf_text(&path), m->settings.max_context, m->batch_size, &why);
    if (m->weights && weights_vocabulary(m->weights) < vocabulary_size(script->vocabulary)) {
        buf_printf(&why, "the tokenizer has %zu tokens and the weights have %zu: they are not of one model",
                   vocabulary_size(script->vocabulary), weights_vocabulary(m->weights));
        weights_close(m->weights);
        m->weights = NULL;
    }
    if (m->weights) {
        vocabulary_pad(script->vocabulary, weights_vocabulary(m->weights));
        script->hidden = weights_width(m->weights);
        console_line('I', "the answers are computed from %s on the CPU of this machine", script->weights);
    } else {
        console_line('E', "%s", buf_text(&why));
    }
    buf_free(&path);
    buf_free(&why);
    return m->weights != NULL;
}

/* Fills m from the parameters of rkllm_init. False, with a line printed, when the runtime would refuse them. */
bool model_open(struct model *m, const RKLLMParam *param) {
    const struct board *board = find_board();
    int npu_cores;
    struct buf why = {0};
    m->console_level = console_level_wanted();
    read_model(m, param->model_path, &why);
    bool environment = true;
    if (m->script) {
        m->faults = m->script->faults;
        m->speed = m->script->speed;
        environment = take_environment(m);
    }
    bool good = greet(m, board, param->model_path, &why);
    buf_free(&why);
    if (!good || !check_model(m, board, &npu_cores)) return false;
    if (!take_settings(m, param) || !check_cpus(board, npu_cores, &param->extend_param)) return false;
    if (!open_weights(m)) return false;
    print_details(m);
    return environment && host_check(m);
}
