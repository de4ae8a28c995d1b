/* call_log.h: one line of JSON per call, for tests that compare what a binding did with what it believes it did.
 *
 * $RKLLM_EMULATOR_LOG names the file; without it nothing is written and the functions below do nothing. Lines are
 * appended whole, so several processes may share a file. */

#ifndef EMULATOR_CALL_LOG_H
#define EMULATOR_CALL_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffers.h"
#include "rkllm_abi.h"

struct call_log {
    char *path; /* NULL: not logging */
    struct buf line;
};

/* The frame of a line. */
void call_log_begin(struct call_log *log, const char *call, int handle);
void call_log_copy(struct call_log *copy, const struct call_log *log);
void call_log_end(struct call_log *log, int returned);
void call_log_end_unreturned(struct call_log *log);
void call_log_drop(struct call_log *log);

/* A callback that is about to be made. */
void call_log_callback(void);

/* Members of the object being written; key NULL inside a list. */
void call_log_open(struct call_log *log, const char *key);
void call_log_close(struct call_log *log);
void call_log_number(struct call_log *log, const char *key, double value);
void call_log_bool(struct call_log *log, const char *key, bool value);
void call_log_text(struct call_log *log, const char *key, const char *value);
void call_log_null(struct call_log *log, const char *key);
void call_log_given(struct call_log *log, const char *key, const void *pointer);
void call_log_ids(struct call_log *log, const char *key, const int32_t *ids, size_t count);

/* Structs of the interface with all their fields (call_log_structs.c). */
void call_log_param(struct call_log *log, const RKLLMParam *param);
void call_log_inputs(struct call_log *log, const RKLLMInput *inputs, int count);
void call_log_infer(struct call_log *log, const RKLLMInferParam *infer);

#endif
