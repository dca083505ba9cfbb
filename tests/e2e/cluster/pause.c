/* Holds a namespace open: the first process of every pod, and of the whole cluster. Reaps what is orphaned to it, ends on SIGTERM. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void reap(int signal) {
    (void)signal;
    while (waitpid(-1, 0, WNOHANG) > 0) {
    }
}

static void end(int signal) {
    (void)signal;
    _exit(0);
}

int main(void) {
    struct sigaction on_child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    struct sigaction on_end = {.sa_handler = end};
    sigaction(SIGCHLD, &on_child, 0);
    sigaction(SIGTERM, &on_end, 0);
    sigaction(SIGINT, &on_end, 0);
    for (;;) {
        pause();
    }
}
