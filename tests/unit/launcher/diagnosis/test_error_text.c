/* What real programs print when they fail, in short: whose error is it? */
#include "launcher/diagnosis/error_text.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define TRACE                                                                                      \
    "Traceback (most recent call last):\n  File \"train.py\", line 10, in <module>\n    step()\n"
#define LOST                                                                                       \
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed "  \
    "by peer [127.0.0.1]:17554\n"
#define OWN     "ValueError: 3 labels for 4 images\n"
#define DURING  "\nDuring handling of the above exception, another exception occurred:\n\n"
#define BECAUSE "\nThe above exception was the direct cause of the following exception:\n\n"

static const struct {
    const char *text;
    enum error_kind kind;
    const char *line; /* NULL: none */
} cases[] = {
    {"", ERROR_UNKNOWN, NULL},
    {"loading\nusage: train.py [-h]\n", ERROR_UNKNOWN, NULL},
    {TRACE OWN, ERROR_OWN, "ValueError: 3 labels for 4 images"},
    {TRACE "ValueError: no newline", ERROR_OWN, "ValueError: no newline"},
    {TRACE LOST, ERROR_PEER_LOST,
     "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed "
     "by "
     "peer [127.0.0.1]:17554"},
    /* torch's excepthook; a terminal's line ends; after a progress bar */
    {"[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\", line 1\n[rank1]: "
     "KeyError: 'x'\n",
     ERROR_OWN, "KeyError: 'x'"},
    {"Traceback (most recent call last):\r\n  File \"t.py\", line 1\r\nKeyError: 'x'\r\n",
     ERROR_OWN, "KeyError: 'x'"},
    {"10%\r20%\rTraceback (most recent call last):\n  File \"t.py\", line 1\nKeyError: 'x'\n",
     ERROR_OWN, "KeyError: 'x'"},
    /* of a chain the first one counts */
    {TRACE OWN DURING TRACE LOST, ERROR_OWN, "ValueError: 3 labels for 4 images"},
    {TRACE LOST BECAUSE TRACE "TrainingError: step 3\n", ERROR_PEER_LOST,
     "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed "
     "by "
     "peer [127.0.0.1]:17554"},
    /* of two that have nothing to do with each other the last one does */
    {TRACE OWN "retrying\n" TRACE LOST, ERROR_PEER_LOST,
     "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed "
     "by "
     "peer [127.0.0.1]:17554"},
    /* what Python ignores does not */
    {TRACE OWN "Exception ignored in atexit callback: <function close>\n" TRACE LOST, ERROR_OWN,
     "ValueError: 3 labels for 4 images"},
    {TRACE OWN "Error in atexit._run_exitfuncs:\n" TRACE LOST, ERROR_OWN,
     "ValueError: 3 labels for 4 images"},
    /* nor does what a thread logs when the peers exit */
    {TRACE OWN "[W1122 TCPStore.cpp:125] recvValue failed on SocketImpl(fd=3): Connection reset by "
               "peer\n",
     ERROR_OWN, "ValueError: 3 labels for 4 images"},
    {TRACE "ConnectionResetError: [Errno 104] Connection reset by peer\n", ERROR_PEER_LOST,
     "ConnectionResetError: [Errno 104] Connection reset by peer"},
    {TRACE "BrokenPipeError: [Errno 32] Broken pipe\n", ERROR_OWN,
     "BrokenPipeError: [Errno 32] Broken pipe"},
    {TRACE "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote "
           "error\nncclRemoteError: A call failed possibly due to a network error or a remote "
           "process exiting prematurely.\n",
     ERROR_PEER_LOST,
     "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote error"},
    {TRACE "torch.distributed.DistNetworkError: failed to recv, got 0 bytes\n", ERROR_PEER_LOST,
     "torch.distributed.DistNetworkError: failed to recv, got 0 bytes"},
    {TRACE "RuntimeError: ddp_all_reduce: rank 1 died: killed by signal 9\n", ERROR_PEER_LOST,
     "RuntimeError: ddp_all_reduce: rank 1 died: killed by signal 9"},
    /* a drawn frame, an exception without a message */
    {"\342\225\255\342\224\200 Traceback (most recent call last) \342\224\200\342\225\256\n"
     "\342\224\202 t.py:3 in main \342\224\202\n\342\225\260\342\225\257\nAssertionError\n",
     ERROR_OWN, "AssertionError"},
    {TRACE, ERROR_UNKNOWN, NULL}, /* cut there */
    /* libtorch */
    {"terminate called after throwing an instance of 'gloo::IoException'\n  what():  "
     "[pair.cc:547] Connection closed by peer [::1]:5\n",
     ERROR_PEER_LOST, "[pair.cc:547] Connection closed by peer [::1]:5"},
    {"terminate called after throwing an instance of 'c10::Error'\n  what():  Expected 3 "
     "dimensions\nException raised from f at x.cpp:3\nframe #0: c10::Error::Error()\n",
     ERROR_OWN, "Expected 3 dimensions"},
    {"libc++abi: terminating due to uncaught exception of type std::runtime_error: bad\n",
     ERROR_OWN, "libc++abi: terminating due to uncaught exception of type std::runtime_error: bad"},
    {TRACE OWN "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  "
               "Watchdog caught collective operation timeout\n",
     ERROR_OWN, "ValueError: 3 labels for 4 images"},
    /* programs that print a line */
    {"train: sum: rank 1 died: it exited with status 9\n\n", ERROR_PEER_LOST,
     "train: sum: rank 1 died: it exited with status 9"},
    {"[rank 0] libddp: train: ddp_barrier(), call #2: rank 1 died: exit status 9\n",
     ERROR_PEER_LOST, "libddp: train: ddp_barrier(), call #2: rank 1 died: exit status 9"},
    {"[rank 0]: rank 1 died\n[rank] x]: rank 1 died\n", ERROR_PEER_LOST, "[rank] x]: rank 1 died"},
    {"[n1:9] An MPI communication peer process has unexpectedly disconnected.\n", ERROR_PEER_LOST,
     "[n1:9] An MPI communication peer process has unexpectedly disconnected."},
    {"[1732.3] [n1:9:0] rc_iface.c:1 UCX  ERROR Transport retry count exceeded on mlx5_0:1\n",
     ERROR_PEER_LOST,
     "[1732.3] [n1:9:0] rc_iface.c:1 UCX  ERROR Transport retry count exceeded on mlx5_0:1"},
    {"download: Connection reset by peer, trying again\na\nb\nc\nd\ne\nf\ng\nh\n", ERROR_UNKNOWN,
     NULL},
};

START_TEST(errors_are_own_or_of_a_lost_peer)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct error_text t = error_text_judge(cases[i].text, strlen(cases[i].text));
        ck_assert_msg(t.kind == cases[i].kind, "case %zu: %d", i, t.kind);
        ck_assert_int_eq(t.line == NULL, cases[i].line == NULL);
        if (t.line != NULL)
            ck_assert_msg(t.n == strlen(cases[i].line) && memcmp(t.line, cases[i].line, t.n) == 0,
                          "case %zu: %.*s", i, (int)t.n, t.line);
    }
}
END_TEST

START_TEST(lines_after_an_exception_are_counted)
{
    static const char text[] = TRACE OWN "\nwaiting\n\nframe #0: f\nagain\n";
    ck_assert_int_eq(error_text_judge(text, strlen(text)).n_after, 2);
    ck_assert_int_eq(error_text_judge(TRACE OWN "more\n", strlen(TRACE OWN "more\n")).n_after, 1);
    ck_assert_int_eq(error_text_judge(TRACE OWN, strlen(TRACE OWN)).n_after, 0);
}
END_TEST

/* Each part of a text, and bytes that are none, in memory that ends where the text does. */
START_TEST(any_bytes_are_classified)
{
    static const char seed[] = "[rank1]: " TRACE LOST DURING TRACE OWN
                               "terminate called after throwing\n  what():  \r\r\n\n[rank";
    for (size_t n = 0; n <= sizeof seed; n++)
        for (int spoil = 0; spoil < 256; spoil += 51) {
            char *text = malloc(n + 1);
            memcpy(text, seed, n);
            text[n / 2] = (char)spoil;
            const struct error_text t = error_text_judge(text, n);
            ck_assert(t.line == NULL || (t.line >= text && t.line + t.n <= text + n));
            free(text);
        }
}
END_TEST

TEST_SUITE(error_text)
{
    Suite *suite = suite_create("error_text");
    TCase *t = tcase_create("error_text");
    tcase_add_test(t, errors_are_own_or_of_a_lost_peer);
    tcase_add_test(t, lines_after_an_exception_are_counted);
    tcase_add_test(t, any_bytes_are_classified);
    suite_add_tcase(suite, t);
    return suite;
}
