/* check.h: the few assertions the C tests need.
 *
 * A test is a function; a file of tests lists them in a table under its own name, and all files make one program, which
 * runs the file that is named to it (main.c). A failed check prints where and what, and the program ends with 1 after
 * the remaining tests have run. */

#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <stdio.h>
#include <string.h>

struct check_test {
    const char *sentence;
    void (*run)(void);
};

static int check_failures;

static inline void check_report(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
    check_failures++;
}

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) check_report(__FILE__, __LINE__, #condition);                                               \
    } while (0)

#define CHECK_INT(expression, expected)                                                                               \
    do {                                                                                                              \
        long check_got = (long)(expression), check_want = (long)(expected);                                           \
        if (check_got != check_want) {                                                                                \
            check_report(__FILE__, __LINE__, #expression);                                                            \
            fprintf(stderr, "    is %ld, not %ld\n", check_got, check_want);                                          \
        }                                                                                                             \
    } while (0)

#define CHECK_TEXT(expression, expected)                                                                              \
    do {                                                                                                              \
        const char *check_got = (expression), *check_want = (expected);                                               \
        if (!check_got || strcmp(check_got, check_want) != 0) {                                                       \
            check_report(__FILE__, __LINE__, #expression);                                                            \
            fprintf(stderr, "    is \"%s\"\n   not \"%s\"\n", check_got ? check_got : "(null)", check_want);          \
        }                                                                                                             \
    } while (0)

/* Runs every test and names the ones that fail; returns the exit code for main. */
static inline int check_run(const struct check_test *tests, size_t count) {
    for (size_t i = 0; i < count; i++) {
        int before = check_failures;
        tests[i].run();
        fprintf(stderr, "%s %s\n", check_failures == before ? "ok  " : "FAIL", tests[i].sentence);
    }
    return check_failures ? 1 : 0;
}

/* Closes a file of tests: its table, run under a name that main.c knows. */
#define CHECK_FILE(name, tests)                                                                                       \
    int check_##name(void);                                                                                           \
    int check_##name(void) { return check_run(tests, sizeof tests / sizeof *tests); }

#endif
