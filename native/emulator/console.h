/* console.h: the lines the runtime prints on standard output, and what it knows of the process it runs in. */

#ifndef EMULATOR_CONSOLE_H
#define EMULATOR_CONSOLE_H

#include <stddef.h>
#include <stdint.h>

#include "buffers.h"

/* $RKLLM_LOG_LEVEL: 1 adds a table of times to every run, 2 adds prompts, tokens and the cache. */
enum console_level { CONSOLE_QUIET, CONSOLE_TIMES, CONSOLE_DETAILS };

int console_level_wanted(void);
void console_line(char severity, const char *format, ...) PRINTF_LIKE(2, 3);
void console_raw(const char *text, size_t len);
void console_escaped(const char *label, const char *text);
void console_quoted(const char *label, const char *text);
void console_npu(const char *text);
void console_noise(void);

double clock_ms(void);
double peak_memory_mb(void);

#endif
