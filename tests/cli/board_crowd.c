/*
 * board_crowd PORT N SECONDS - N clients that do nothing useful: each opens a connection to
 * 127.0.0.1, begins a request, sends one byte of it a second, and never ends it; those that
 * are thrown out come again. Prints how many of them were ever connected at once.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static int begin(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((unsigned short)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0)
        (void)connect(fd, (struct sockaddr *)&to, sizeof to); // goes on by itself
    return fd;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    int port = atoi(argv[1]), n = atoi(argv[2]), seconds = atoi(argv[3]), most = 0;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    int *fds = malloc((size_t)n * sizeof *fds);
    if (!fds)
        return 3;
    for (int i = 0; i < n; i++)
        fds[i] = begin(port);
    for (int s = 0; s < seconds; s++) {
        int n_connected = 0;
        for (int i = 0; i < n; i++) {
            char byte;
            struct pollfd at = {.fd = fds[i], .events = POLLOUT};
            if (fds[i] < 0)
                continue;
            if (recv(fds[i], &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0) {
                close(fds[i]);
                fds[i] = begin(port);
                at.fd = fds[i];
            }
            if (poll(&at, 1, 0) == 1 && (at.revents & POLLOUT) &&
                send(fds[i], s == 0 ? "G" : "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
                n_connected++;
        }
        most = n_connected > most ? n_connected : most;
        sleep(1);
    }
    printf("%d\n", most);
    free(fds);
    return 0;
}
