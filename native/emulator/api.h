/* api.h: what the two halves of the interface share. */

#ifndef EMULATOR_API_H
#define EMULATOR_API_H

#include "call_log.h"
#include "model.h"

uint32_t open_default_cpus(void);
struct model *api_enter(struct call_log *log, const char *call, LLMHandle handle);
int api_leave(struct call_log *log, int result);

#endif
