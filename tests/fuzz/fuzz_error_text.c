/* Any bytes as what a rank wrote to standard error. */
#include "fuzz.h"
#include "launcher/diagnosis/error_text.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    const struct error_text t = error_text_judge(bytes, size);
    require(t.n_after >= 0);
    require((t.line == NULL) == (t.kind == ERROR_UNKNOWN));
    require(t.line == NULL || (t.line >= bytes && t.line + t.n <= bytes + size));
    require(!t.is_exception || t.kind != ERROR_UNKNOWN);
    return 0;
}
