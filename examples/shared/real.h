/* real.h - the number type of the networks here: float, or double when built with REAL_DOUBLE.
 *
 * The double build is for exact checks: losses of 1, 2 and 4 ranks agree to a few units in the last
 * place only where rounding is that small. */
#ifndef DDP_EXAMPLES_SHARED_REAL_H
#define DDP_EXAMPLES_SHARED_REAL_H

#include <ddp/types.h>

#ifdef REAL_DOUBLE
typedef double real;
#define REAL_DTYPE DDP_FLOAT64
#else
typedef float real;
#define REAL_DTYPE DDP_FLOAT32
#endif

#endif
