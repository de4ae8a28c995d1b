/* source_file.h: whole files and pieces of paths. */

#ifndef EMULATOR_SOURCE_FILE_H
#define EMULATOR_SOURCE_FILE_H

#include <stdbool.h>

#include "buffers.h"

bool source_file_read(const char *path, struct buf *out);
bool source_file_starts_with(const char *path, const char *magic, int *open_errno);
void path_beside(const char *file, const char *name, struct buf *out);

#endif
