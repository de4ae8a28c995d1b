/* utf8.c: see utf8.h. */

#include "utf8.h"

/* Writes the character code as UTF-8 and returns the number of bytes; out has room for four. */
size_t utf8_encode(unsigned code, char *out) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | (code >> 6));
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | (code >> 12));
        out[1] = (char)(0x80 | ((code >> 6) & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | (code >> 18));
    out[1] = (char)(0x80 | ((code >> 12) & 0x3f));
    out[2] = (char)(0x80 | ((code >> 6) & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* Returns how many bytes a character starting with lead has; 0 when no character starts so. */
static size_t expected_width(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead >= 0xc2 && lead <= 0xdf) return 2;
    if (lead >= 0xe0 && lead <= 0xef) return 3;
    if (lead >= 0xf0 && lead <= 0xf4) return 4;
    return 0;
}

/* True when second may follow lead: rules out overlong forms, surrogates and codes above U+10FFFF. */
static bool second_fits(unsigned char lead, unsigned char second) {
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    return second >= low && second <= high;
}

/* Returns how many bytes at the start of text fit the beginning of one character, at most its width. */
static size_t fitting_bytes(const char *text, size_t len, size_t width) {
    const unsigned char *bytes = (const unsigned char *)text;
    size_t fit = 1;
    if (width > 1 && len > 1 && second_fits(bytes[0], bytes[1])) fit = 2;
    while (fit >= 2 && fit < width && fit < len && (bytes[fit] & 0xc0) == 0x80) fit++;
    return fit;
}

/* Returns the bytes of the whole character at the start of text; 0 when none exists. */
size_t utf8_width(const char *text, size_t len) {
    size_t width = len ? expected_width((unsigned char)text[0]) : 0;
    return width && fitting_bytes(text, len, width) == width ? width : 0;
}

/* True when text stops in the middle of a character that more bytes could still complete. */
bool utf8_ends_inside_character(const char *text, size_t len) {
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        const char *lead = text + len - back;
        size_t width = expected_width((unsigned char)*lead);
        if (width > back) return fitting_bytes(lead, back, width) == back;
        if (width) return false;
    }
    return false;
}
