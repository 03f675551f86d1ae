/* What the static analyzers have to know of other files: included before each source that they
 * analyze (tests/lint/analyze.py). */
#ifndef DDP_TESTS_LINT_ANALYZE_MODEL_H
#define DDP_TESTS_LINT_ANALYZE_MODEL_H

#include "../../common/error.h"

/* co_fail() returns the code that it is given, which is that of a failure. Two functions, since
 * clang does not look into one with variable arguments. */
static inline int co_fail_model(int code)
{
    if (code >= 0)
        __builtin_unreachable();
    return code;
}

static inline void co_fail_model_text(struct co_error *err, const char *format, ...)
{
    (void)err;
    (void)format;
}

#define co_fail(err, code, ...) (co_fail_model_text(err, __VA_ARGS__), co_fail_model(code))

#endif
