/* source_file.c: see source_file.h. */

#include "source_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Appends the whole file to out; false with errno set when it cannot be read. */
bool source_file_read(const char *path, struct buf *out) {
    char block[65536];
    size_t got;
    FILE *file = fopen(path, "rbe");
    if (!file) return false;
    while ((got = fread(block, 1, sizeof block, file)) > 0) buf_put(out, block, got);
    int failed = ferror(file) ? errno : 0;
    fclose(file);
    errno = failed;
    return !failed;
}

/* True when the first line of the file is magic. When the file cannot be opened, *open_errno says why; else 0.
 * Reads no more than the first line: a real model is gigabytes. */
bool source_file_starts_with(const char *path, const char *magic, int *open_errno) {
    char line[128] = "";
    FILE *file = fopen(path, "rbe");
    *open_errno = file ? 0 : errno;
    if (!file) return false;
    size_t got = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[got] = 0;
    line[strcspn(line, "\r\n")] = 0;
    return strcmp(line, magic) == 0;
}

/* Appends name, taken as relative to the directory file is in unless it is absolute. */
void path_beside(const char *file, const char *name, struct buf *out) {
    const char *slash = strrchr(file, '/');
    if (name[0] != '/' && slash) buf_put(out, file, (size_t)(slash - file) + 1);
    buf_puts(out, name);
}
