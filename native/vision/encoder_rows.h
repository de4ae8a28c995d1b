/* encoder_rows.h: what the rows of the emulated encoder hold, for librknnrt.so, which writes them, and librkllmrt.so,
 * which reads them. A row is one cell of the picture and one output of the encoder; the rest of it is 0. */

#ifndef ENCODER_ROWS_H
#define ENCODER_ROWS_H

#define ROW_MARK_VALUE (-64.0f)

enum {
    ROW_MARK,    /* ROW_MARK_VALUE */
    ROW_RED,     /* mean colours of the cell, 0 to 1 */
    ROW_GREEN,
    ROW_BLUE,
    ROW_CELL,    /* number of the cell, line by line */
    ROW_OUTPUT,  /* number of the output */
    ROW_OUTPUTS, /* outputs of the encoder */
    ROW_LINES,   /* cells from top to bottom, and from left to right */
    ROW_COLUMNS,
    ROW_LEAST_WIDTH
};

#endif
