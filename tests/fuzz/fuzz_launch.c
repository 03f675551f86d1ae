/* fuzz_launch.c - any bytes as input of a launch channel, at either end. An order that is accepted
 * is the same when it is sent again.
 *
 * The first byte selects the end: 'l' lines of a node, 's' signals, else an order. */
#include "common/error.h"
#include "fuzz.h"
#include "launcher/remote/launch_wire.h"

#include <stdlib.h>
#include <string.h>

static void check_lines(const uint8_t *data, size_t size)
{
    char from[LAUNCH_FROM_BYTES];
    size_t used = 0;
    for (int which = LAUNCH_UP; which <= LAUNCH_WANTS; which++) {
        int rc = launch_find_line((enum launch_line)which, data, size, &used, from, NULL);
        require(rc <= 1);
        if (rc == 1)
            require(used <= size && data[used - 1] == '\n');
        if (rc == 1 && which != LAUNCH_READY)
            require(strlen(from) < sizeof from && strpbrk(from, " \n'$;/") == NULL);
    }
}

static void check_signals(const uint8_t *data, size_t size)
{
    struct co_buf in = {0};
    int sig;
    require(co_buf_append(&in, data, size) == 0);
    while ((sig = launch_take_signal(&in)) > 0)
        require(sig <= LAUNCH_ALL_SAVED);
    co_buf_fini(&in);
}

static void check_order(const uint8_t *data, size_t size)
{
    struct launch_order order, again;
    struct co_error err = {0};
    struct co_buf out = {0};
    ssize_t len = launch_order_len(data, size);
    require(len <= (ssize_t)size);
    if (len <= 0)
        return;
    char *bytes = malloc((size_t)len);
    require(bytes != NULL);
    memcpy(bytes, data, (size_t)len);
    if (launch_take_order(bytes, (size_t)len, &order, &err) == 0) {
        require(launch_put_order(&order, &out) == 0);
        require(launch_take_order((char *)out.data, co_buf_len(&out), &again, NULL) == 0);
        require(again.n_argv == order.n_argv && again.n_env == order.n_env);
        require(again.port == order.port && again.n_ranks == order.n_ranks && order.n_argv > 0);
        require(strcmp(again.dir, order.dir) == 0 && order.dir[0] == '/');
        launch_order_fini(&again);
        launch_order_fini(&order);
    } else {
        require(err.text[0] != '\0');
    }
    co_buf_fini(&out);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == 'l')
        check_lines(data + 1, size - 1);
    else if (data[0] == 's')
        check_signals(data + 1, size - 1);
    else
        check_order(data + 1, size - 1);
    return 0;
}
