/* llama_library.c: see llama_library.h. */

#include "llama_library.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_ERROR 4 /* GGML_LOG_LEVEL_ERROR */

/* Lets only the library's errors through. */
static void print_error(int level, const char *text, void *user) {
    (void)user;
    if (level == LOG_ERROR) fprintf(stderr, "%s", text);
}

/* Opens the library of that name in a folder, whatever its file's version is ("libllama." finds libllama.v0.4.0.so).
 * NULL when none exists, or with the linker's reason in why when it cannot be opened. */
static void *open_in(const char *folder, const char *prefix, struct buf *why) {
    struct buf path = {0};
    void *library = NULL;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && !library && (entry = readdir(directory));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || !strstr(entry->d_name, ".so")) continue;
        buf_clear(&path);
        buf_printf(&path, "%s/%s", folder, entry->d_name);
        library = dlopen(buf_text(&path), RTLD_NOW | RTLD_GLOBAL);
        if (!library) buf_printf(why, "%s%s", why->len ? "; " : "", dlerror());
    }
    if (directory) closedir(directory);
    buf_free(&path);
    return library;
}

/* The two libraries that functions are looked up in, and where they lie. */
struct libraries {
    void *llama, *ggml;
    const char *folder; /* NULL: where the system keeps libraries */
};

/* Opens the libraries of a folder; they need each other in this order. */
static bool open_folder(struct libraries *libraries, const char *folder, struct buf *why) {
    open_in(folder, "libggml-base.", why);
    libraries->ggml = open_in(folder, "libggml.", why);
    libraries->llama = open_in(folder, "libllama.", why);
    libraries->folder = folder;
    return libraries->llama && libraries->ggml;
}

/* Opens the system's libraries. */
static bool open_system(struct libraries *libraries) {
    static const char *const names[][2] = {{"libllama.so", "libggml.so"}, {"libllama.so.0", "libggml.so.0"}};
    for (size_t i = 0; i < sizeof names / sizeof *names && !libraries->llama; i++) {
        libraries->ggml = dlopen(names[i][1], RTLD_NOW | RTLD_GLOBAL);
        libraries->llama = dlopen(names[i][0], RTLD_NOW | RTLD_GLOBAL);
    }
    libraries->folder = NULL;
    return libraries->llama && libraries->ggml;
}

/* Writes the folder in which the user keeps the library; nothing where the user has no home. */
static void installed_folder(struct buf *out) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (data && *data == '/')
        buf_printf(out, "%s/rkllm-mcp/llama", data);
    else if (home && *home)
        buf_printf(out, "%s/.local/share/rkllm-mcp/llama", home);
}

/* Opens the libraries where they are first found. */
static bool open_any(struct libraries *libraries, struct buf *folder, struct buf *error) {
    const char *chosen = getenv(LLAMA_FOLDER_VARIABLE);
    struct buf why = {0};
    bool good;
    if (chosen && *chosen) {
        buf_puts(folder, chosen);
        good = open_folder(libraries, buf_text(folder), &why);
    } else {
        installed_folder(folder);
        good = (folder->len && open_folder(libraries, buf_text(folder), &why)) || open_system(libraries);
    }
    if (!good)
        buf_printf(error, "llama.cpp's library, which computes a model with weights, was not found in %s%s%s%s; "
                          "'rkllm-mcp runtime pull llama' fetches it, or name the folder with libllama in " LLAMA_FOLDER_VARIABLE,
                   folder->len ? buf_text(folder) : "any folder", chosen && *chosen ? "" : " or among the system's libraries",
                   why.len ? ": " : "", buf_text(&why));
    buf_free(&why);
    return good;
}

/* Looks every function up; false with the names of those that this release does not have. */
static bool look_up(struct llama_library *l, const struct libraries *libraries, struct buf *error) {
    const struct {
        void **function;
        const char *name;
    } functions[] = {
        {(void **)&l->backend_init, "llama_backend_init"},
        {(void **)&l->log_set, "llama_log_set"},
        {(void **)&l->model_default, "llama_model_default_params"},
        {(void **)&l->context_default, "llama_context_default_params"},
        {(void **)&l->model_load, "llama_model_load_from_file"},
        {(void **)&l->context_create, "llama_init_from_model"},
        {(void **)&l->model_free, "llama_model_free"},
        {(void **)&l->context_free, "llama_free"},
        {(void **)&l->set_threads, "llama_set_n_threads"},
        {(void **)&l->set_embeddings, "llama_set_embeddings"},
        {(void **)&l->pooling, "llama_pooling_type"},
        {(void **)&l->vocab, "llama_model_get_vocab"},
        {(void **)&l->vocab_size, "llama_vocab_n_tokens"},
        {(void **)&l->ends_generation, "llama_vocab_is_eog"},
        {(void **)&l->width, "llama_model_n_embd"},
        {(void **)&l->tokenize, "llama_tokenize"},
        {(void **)&l->decode, "llama_decode"},
        {(void **)&l->logits, "llama_get_logits_ith"},
        {(void **)&l->hidden, "llama_get_embeddings_ith"},
        {(void **)&l->memory, "llama_get_memory"},
        {(void **)&l->memory_remove, "llama_memory_seq_rm"},
        {(void **)&l->state_size, "llama_state_seq_get_size"},
        {(void **)&l->state_copy, "llama_state_seq_get_data"},
        {(void **)&l->state_restore, "llama_state_seq_set_data"},
        {(void **)&l->grammar_create, "llama_sampler_init_grammar"},
        {(void **)&l->sampler_apply, "llama_sampler_apply"},
        {(void **)&l->sampler_accept, "llama_sampler_accept"},
        {(void **)&l->sampler_free, "llama_sampler_free"},
    };
    struct buf missing = {0};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *address = dlsym(libraries->llama, functions[i].name);
        if (address)
            memcpy(functions[i].function, &address, sizeof address);
        else
            buf_printf(&missing, " %s", functions[i].name);
    }
    bool good = !missing.len;
    if (!good)
        buf_printf(error, "this release of libllama is too old or too new: it lacks%s; "
                          "name another's folder in " LLAMA_FOLDER_VARIABLE, buf_text(&missing));
    buf_free(&missing);
    return good;
}

/* Lets the library find the code for this machine's processor. */
static void load_backends(const struct libraries *libraries) {
    void *address = dlsym(libraries->ggml, libraries->folder ? "ggml_backend_load_all_from_path"
                                                             : "ggml_backend_load_all");
    union {
        void *address;
        void (*from)(const char *);
        void (*all)(void);
    } load = {address};
    if (address && libraries->folder) load.from(libraries->folder);
    if (address && !libraries->folder) load.all();
}

/* Opens the library, once in a process. NULL with a sentence in error that says what to do. */
const struct llama_library *llama_library_open(struct buf *error) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct llama_library library;
    static bool opened;
    pthread_mutex_lock(&lock);
    if (!opened) {
        struct libraries libraries = {0};
        struct buf folder = {0};
        opened = open_any(&libraries, &folder, error) && look_up(&library, &libraries, error);
        if (opened) {
            library.log_set(print_error, NULL);
            load_backends(&libraries);
            library.backend_init();
        }
        buf_free(&folder);
    }
    pthread_mutex_unlock(&lock);
    return opened ? &library : NULL;
}
