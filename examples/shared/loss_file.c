#include "loss_file.h"

#include "failure.h"

int loss_file_open(struct loss_file *l, const char *path, bool goes_on, struct failure *why)
{
    if (l->file != NULL)
        return 0;
    FILE *f = fopen(path, goes_on ? "ae" : "we");
    if (f == NULL)
        return failure_set(why, "cannot write the loss file '%s': %m", path);
    setvbuf(f, NULL, _IOLBF, 0); /* what was written outlives this rank */
    *l = (struct loss_file){.file = f, .path = path};
    return 0;
}

void loss_file_add(struct loss_file *l, double loss)
{
    if (l->file != NULL)
        fprintf(l->file, "%.17g\n", loss);
}

int loss_file_close(struct loss_file *l, struct failure *why)
{
    if (l->file == NULL)
        return 0;
    const bool failed = ferror(l->file);
    const char *path = l->path;
    const bool cut = fclose(l->file) != 0 || failed;
    *l = (struct loss_file){0};
    return cut ? failure_set(why, "cannot write the loss file '%s' to its end", path) : 0;
}
