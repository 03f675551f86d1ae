/* fuzz_request.c - one line on a job's socket. A line that is accepted as a request has the same
 * bytes when it is written again: no request has two forms. */
#include "common/error.h"
#include "console/job_request.h"
#include "fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct job_request r;
    struct co_error err = {0};
    char line[JOB_REQUEST_BYTES];
    if (job_request_read((const char *)data, size, &r, &err) < 0) {
        require(err.text[0] != '\0');
        return 0;
    }
    require(job_request_write(&r, line) == size + 1);
    require(memcmp(line, data, size) == 0 && line[size] == '\n');
    return 0;
}
