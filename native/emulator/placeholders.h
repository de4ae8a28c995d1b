/* placeholders.h: fills $0..$9 and %0..%9 of a rule's text with what its expressions captured. */

#ifndef EMULATOR_PLACEHOLDERS_H
#define EMULATOR_PLACEHOLDERS_H

#include <stddef.h>

#include "buffers.h"

#define CAPTURES 10

struct capture {
    const char *text; /* not terminated; NULL when nothing was captured */
    size_t len;
};

struct captures {
    struct capture user[CAPTURES];   /* $0 (the whole match) to $9 */
    struct capture result[CAPTURES]; /* %0 to %9 */
};

enum placeholder_place { PLACEHOLDERS_IN_TEXT, PLACEHOLDERS_IN_JSON };

void placeholders_fill(const char *pattern, enum placeholder_place place, const struct captures *captures,
                       struct buf *out, struct buf *plain);

#endif
