#include "cpu_tuning_read.h"

#include "common/error.h"
#include "common/scope.h"
#include "cpu_tuning.h"

#include <ddp/env.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int read_file(const char *path, struct cpu_tunings *ret, struct co_error *err)
{
    co_autoclose FILE *in = fopen(path, "re");
    co_autofree char *text = malloc(CPU_TUNING_MAX_TEXT + 1);
    if (in == NULL)
        return co_fail(err, -ENOEXEC, "cannot open '%s': %s", path, strerror(errno));
    if (text == NULL)
        return co_fail(err, -ENOMEM, "no memory for '%s'", path);
    const size_t length = fread(text, 1, CPU_TUNING_MAX_TEXT + 1, in); /* one too many shows */
    if (ferror(in))
        return co_fail(err, -ENOEXEC, "cannot read '%s'", path);
    return cpu_tuning_parse(text, length, ret, err) < 0 ? co_fail_in(err, "'%s'", path) : 0;
}

int cpu_tuning_read(const char *value, struct cpu_tunings *ret, struct co_error *err)
{
    struct cpu_tunings table = cpu_tunings_default;
    int code = 0;
    if (value != NULL && value[0] != '\0')
        code = strchr(value, '/') != NULL ? read_file(value, &table, err)
                                          : cpu_tuning_parse(value, strlen(value), &table, err);
    if (code != 0) {
        co_fail_in(err, "%s", DDP_ENV_TUNING);
        return code == -ENOMEM ? code : -ENOEXEC;
    }
    *ret = table;
    return 0;
}
