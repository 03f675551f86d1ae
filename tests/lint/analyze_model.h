/* What the static analyzers have to know of other files: included before each source that they
 * analyze (tests/lint/analyze.py). */
#ifndef DDP_TESTS_LINT_ANALYZE_MODEL_H
#define DDP_TESTS_LINT_ANALYZE_MODEL_H

#include "../../common/error.h"

/* co_fail() returns the code that it is given, which is that of a failure. */
static inline int co_fail_model(int code, ...)
{
    if (code >= 0)
        __builtin_unreachable();
    return code;
}

#define co_fail(err, code, ...) co_fail_model(code, err, __VA_ARGS__)

#endif
