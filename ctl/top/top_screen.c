#include "top_screen.h"

#include "common/error.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* The other screen, no cursor, no wrapping of lines that are too long while it is being resized. */
static const char enter_text[] = "\033[?1049h\033[?25l\033[?7l";
static const char leave_text[] = "\033[?7h\033[?25h\033[?1049l";

static struct termios before;
static bool is_open;
static volatile sig_atomic_t ends;

static void on_end(int sig)
{
    (void)sig;
    ends = 1;
}

static void on_size(int sig)
{
    (void)sig; /* it has ended the wait */
}

static void set_handler(int sig, void (*handler)(int))
{
    struct sigaction act = {.sa_handler = handler};
    sigemptyset(&act.sa_mask);
    sigaction(sig, &act, NULL);
}

int top_screen_open(struct co_error *err)
{
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    if (!isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before) < 0)
        return co_fail(err, -ENOTTY, "stdin and stdout are not terminals; use --once");
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        set_handler(ending[i], on_end);
    set_handler(SIGWINCH, on_size);
    set_handler(SIGPIPE, SIG_IGN);
    struct termios raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) < 0)
        return co_fail(err, -errno, "cannot set up the terminal: %s", strerror(errno));
    is_open = true;
    fputs(enter_text, stdout);
    return 0;
}

void top_screen_close(void)
{
    if (!is_open)
        return;
    is_open = false;
    fputs(leave_text, stdout);
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

void top_screen_size(int *ret_width, int *ret_height)
{
    struct winsize size = {0};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    *ret_width = size.ws_col > 0 ? size.ws_col : 80;
    *ret_height = size.ws_row > 0 ? size.ws_row : 24;
}

/* Each line ends what was there before; the last newline would scroll. */
bool top_screen_draw(const char *lines)
{
    fputs("\033[H", stdout);
    for (bool is_first = true; *lines != '\0'; is_first = false) {
        size_t n = strcspn(lines, "\n");
        printf("%s%.*s\033[K", is_first ? "" : "\r\n", (int)n, lines);
        lines += n + (lines[n] == '\n');
    }
    fputs("\033[J", stdout);
    return fflush(stdout) == 0;
}

/* Signals come during the wait only, so that none is missed between a look and a wait. */
int top_screen_wait(uint64_t ms)
{
    sigset_t blocked, open;
    struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
    const struct timespec time = {.tv_sec = (time_t)(ms / 1000),
                                  .tv_nsec = (long)(ms % 1000) * 1000000};
    char key;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGHUP);
    sigaddset(&blocked, SIGQUIT);
    sigaddset(&blocked, SIGWINCH);
    sigprocmask(SIG_BLOCK, &blocked, &open);
    int n = ends ? 0 : ppoll(&keys, 1, &time, &open);
    sigprocmask(SIG_SETMASK, &open, NULL);
    if (ends || (n > 0 && (keys.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0))
        return TOP_KEY_END;
    if (n > 0 && read(STDIN_FILENO, &key, 1) == 1)
        return (unsigned char)key;
    return TOP_KEY_NONE;
}
