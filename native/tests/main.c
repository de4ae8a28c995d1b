/* main.c: runs the file of tests that is named to it.
 *
 *   tests NAME */

#include <stdio.h>
#include <string.h>

int check_parts(void);
int check_scripts(void);
int check_runs(void);
int check_state(void);
int check_numbers(void);
int check_inputs(void);
int check_faults(void);
int check_threads(void);
int check_weights(void);

static const struct {
    const char *name;
    int (*run)(void);
} files[] = {
    {"parts", check_parts},
    {"scripts", check_scripts},
    {"runs", check_runs},
    {"state", check_state},
    {"numbers", check_numbers},
    {"inputs", check_inputs},
    {"faults", check_faults},
    {"threads", check_threads},
    {"weights", check_weights},
};

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (argc == 2 && strcmp(argv[1], files[i].name) == 0) return files[i].run();
    fprintf(stderr, "usage: %s NAME, which is one of:", argv[0]);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) fprintf(stderr, " %s", files[i].name);
    fprintf(stderr, "\n");
    return 2;
}
