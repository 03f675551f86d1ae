#include "trainjob_plugin.h"

#include "trainjob_body.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ANSWER_BYTES = 65536 };

static int trainjob_init(void)
{
    return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? 0 : -ENOMEM;
}

/* A longer answer ends the transfer; its status counts anyway. */
static size_t on_bytes(char *bytes, size_t size, size_t n, void *arg)
{
    size_t *left = arg;
    (void)bytes;
    if (size * n > *left)
        return 0;
    *left -= size * n;
    return size * n;
}

static struct curl_slist *make_headers(const char *token)
{
    static const char *const fixed[] = {"Content-Type: application/json", "Expect:"};
    static const char format[] = "Authorization: Bearer %s";
    const size_t size = sizeof format + strlen(token);
    struct curl_slist *headers = NULL, *longer;
    char *line = malloc(size);
    if (line == NULL)
        return NULL;
    snprintf(line, size, format, token);
    longer = headers = curl_slist_append(NULL, line);
    for (size_t i = 0; longer != NULL && i < sizeof fixed / sizeof *fixed; i++)
        longer = curl_slist_append(headers, fixed[i]);
    explicit_bzero(line, size);
    free(line);
    if (longer == NULL) {
        curl_slist_free_all(headers);
        return NULL;
    }
    return headers;
}

static bool set_up(CURL *easy, const struct trainjob_request *r, struct curl_slist *headers,
                   char *why, size_t *left)
{
    return curl_easy_setopt(easy, CURLOPT_URL, r->url) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "https") == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_CAINFO, r->ca_cert) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_NOPROXY, "*") == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)r->timeout_ms) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)r->len) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_POSTFIELDS, r->body) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEDATA, left) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, why) == CURLE_OK;
}

static int trainjob_post(const struct trainjob_request *r, char why[TRAINJOB_WHY_BYTES])
{
    char text[CURL_ERROR_SIZE] = "";
    size_t left = MAX_ANSWER_BYTES;
    long status = 0;
    struct curl_slist *headers = make_headers(r->token);
    CURL *easy = headers != NULL ? curl_easy_init() : NULL;
    CURLcode code = CURLE_OUT_OF_MEMORY;
    if (easy != NULL && set_up(easy, r, headers, text, &left))
        code = curl_easy_perform(easy);
    if (easy != NULL)
        curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    snprintf(why, TRAINJOB_WHY_BYTES, "%.200s", text[0] != '\0' ? text : curl_easy_strerror(code));
    curl_easy_cleanup(easy);
    curl_slist_free_all(headers);
    return code == CURLE_OK || code == CURLE_WRITE_ERROR ? (int)status : 0;
}

__attribute__((visibility("default"))) const struct trainjob_plugin ddprun_trainjob_plugin = {
    .version = TRAINJOB_PLUGIN_VERSION, .init = trainjob_init, .post = trainjob_post};
