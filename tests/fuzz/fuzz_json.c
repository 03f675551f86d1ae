/* Any bytes as a rank's error file: read, and passed on as our own. */
#include "launcher/diagnosis/error_file.h"

#include "common/error.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct co_error err;
    char *message = NULL;
    if (error_file_parse((const char *)data, n, &message, &err) < 0)
        return 0;
    if (strlen(message) > ERROR_FILE_MAX_MESSAGE)
        abort();
    free(message);
    char *text = calloc(1, n + 1);
    if (text != NULL) {
        memcpy(text, data, n);
        error_file_write("/dev/null", text, "", 1, 0, &err);
    }
    free(text);
    return 0;
}
