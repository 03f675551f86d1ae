#include "error_file.h"

#include "common/error.h"
#include "common/scope.h"
#include "common/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void decref_at(json_t **json)
{
    json_decref(*json);
}

#define auto_json __attribute__((cleanup(decref_at))) json_t

static int parse_error(const char *bytes, size_t n, json_t **ret, struct co_error *err)
{
    json_error_t where;
    if (n > ERROR_FILE_MAX_BYTES)
        return co_fail(err, -EFBIG, "larger than %d bytes", ERROR_FILE_MAX_BYTES);
    *ret = json_loadb(bytes, n, 0, &where);
    if (*ret == NULL)
        return co_fail(err, -EPROTO, "not valid JSON: line %d: %s", where.line, where.text);
    return 0;
}

/* json_string of "message", or of "message" in "message"; borrowed, NULL without one. */
static json_t *find_message(json_t *root)
{
    json_t *message = json_object_get(root, "message");
    if (json_is_object(message))
        message = json_object_get(message, "message");
    return json_is_string(message) ? message : NULL;
}

int error_file_parse(const char *bytes, size_t n, char **ret_message, struct co_error *err)
{
    auto_json *root = NULL;
    int rc = parse_error(bytes, n, &root, err);
    if (rc < 0)
        return rc;
    json_t *message = find_message(root);
    if (message == NULL)
        return co_fail(err, -EPROTO, "JSON, but without a \"message\"");
    char *copy = strndup(json_string_value(message), ERROR_FILE_MAX_MESSAGE);
    if (copy == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    *ret_message = copy;
    return 0;
}

int error_file_read(const char *path, char **ret_message, char **ret_text, struct co_error *err)
{
    /* not blocking: a rank may have put a FIFO there; not following: or a link to elsewhere */
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return co_fail(err, -errno, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return co_fail(err, -EPROTO, "%s: not a regular file", path);
    if (st.st_size == 0)
        return co_fail(err, -ENOENT, "%s: empty", path);
    if (st.st_size > ERROR_FILE_MAX_BYTES)
        return co_fail(err, -EFBIG, "%s: larger than %d bytes", path, ERROR_FILE_MAX_BYTES);
    co_autofree char *text = malloc((size_t)st.st_size + 1);
    ssize_t n = text != NULL ? co_read_all(fd, text, (size_t)st.st_size) : -ENOMEM;
    if (n < 0)
        return co_fail(err, (int)n, "%s: %s", path, strerror((int)-n));
    text[n] = '\0';
    if (error_file_parse(text, (size_t)n, ret_message, err) < 0)
        return co_fail_in(err, "%s", path);
    *ret_text = co_take(&text);
    return 0;
}

static json_t *make_message(const char *message, int64_t now_s)
{
    char timestamp[24];
    snprintf(timestamp, sizeof timestamp, "%" PRId64, now_s);
    return json_pack("{s:{s:s,s:{s:s}}}", "message", "message", message, "extraInfo", "timestamp",
                     timestamp);
}

int error_file_write(const char *path, const char *text, const char *message, int exit_code,
                     int64_t now_s, struct co_error *err)
{
    auto_json *root = NULL;
    if (text != NULL) {
        int rc = parse_error(text, strlen(text), &root, err);
        if (rc < 0)
            return rc;
    } else {
        root = make_message(message, now_s);
    }
    json_t *inner = json_object_get(root, "message");
    if (json_is_object(inner))
        json_object_set_new(inner, "errorCode", json_integer(exit_code));
    else /* "message" is a plain string: the code is next to it */
        json_object_set_new(root, "errorCode", json_integer(exit_code));
    co_autofree char *out = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
    if (out == NULL)
        return co_fail(err, -ENOMEM, "out of memory");

    co_autoclose FILE *file = fopen(path, "we");
    if (file == NULL || fputs(out, file) < 0 || fflush(file) != 0)
        return co_fail(err, -errno, "cannot write %s: %s", path, strerror(errno));
    return 0;
}
