#include "launch/watch_link.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPORT_EVERY 0.5     // seconds
#define OUT_OF_REACH_AFTER 3 // seconds of silence; it matters when nobody moves
#define TOKEN_WITHIN 5.0     // seconds; who is silent for longer is cut off
#define TRY_EVERY 2.0        // seconds for an address to answer
#define STRANGERS_MOST 64    // connections that have not told the token
#define LINE_BYTES 512

struct watch_host {
    struct watch_host *next;
    int fd;         // -1: cut off
    char name[256]; // "": it has not told the token
    char line[LINE_BYTES];
    size_t n_line;
    double heard; // clock_seconds()
};

struct reported_rank {
    const struct watch_host *by; // NULL: nobody told of it
    struct seen_rank seen;
    double at; // clock_seconds()
};

/* -- listening ----------------------------------------------------------------------- */

static int make_token(char *token, size_t size)
{
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return -1;
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(token + 2 * i, size - 2 * i, "%02x", random[i]);
    return 0;
}

int watch_server_open(struct watch_server *s, int n_ranks, struct error *err)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = INADDR_ANY};
    *s = (struct watch_server){.fd = -1, .n_ranks = n_ranks};
    s->ranks = calloc((size_t)n_ranks, sizeof *s->ranks);
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->ranks && s->fd >= 0 && bind(s->fd, (struct sockaddr *)&any, sizeof any) == 0 &&
        listen(s->fd, 128) == 0 && make_token(s->token, sizeof s->token) == 0)
        return 0;
    error_set(err, ERROR_RUNTIME, "cannot listen to watchers of other hosts: %s",
              strerror(errno));
    watch_server_close(s);
    return -1;
}

static void host_close(struct watch_host *h)
{
    if (h->fd >= 0)
        close(h->fd);
    h->fd = -1;
}

void watch_server_close(struct watch_server *s)
{
    while (s->hosts) {
        struct watch_host *h = s->hosts;
        s->hosts = h->next;
        host_close(h);
        free(h);
    }
    if (s->ranks && s->fd >= 0)
        close(s->fd);
    free(s->ranks);
    *s = (struct watch_server){.fd = -1};
}

/* All addresses of this host, the loopback last: hosts may be near. */
void watch_server_contact(const struct watch_server *s, char contact[WATCH_CONTACT_BYTES])
{
    struct sockaddr_in at = {0};
    socklen_t n_at = sizeof at;
    struct ifaddrs *all = NULL;
    size_t used = 0;
    contact[0] = '\0';
    if (s->fd < 0 || getsockname(s->fd, (struct sockaddr *)&at, &n_at) ||
        getifaddrs(&all))
        return;
    used = (size_t)snprintf(contact, WATCH_CONTACT_BYTES, "%s %d", s->token,
                            ntohs(at.sin_port));
    for (int is_loopback = 0; is_loopback < 2; is_loopback++)
        for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
            char text[INET_ADDRSTRLEN];
            struct sockaddr_in address;
            if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET ||
                ((i->ifa_flags & IFF_LOOPBACK) != 0) != is_loopback)
                continue;
            memcpy(&address, i->ifa_addr, sizeof address);
            inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
            if (used + strlen(text) + 2 < WATCH_CONTACT_BYTES)
                used += (size_t)snprintf(contact + used, WATCH_CONTACT_BYTES - used,
                                         " %s", text);
        }
    freeifaddrs(all);
}

static void take_connections(struct watch_server *s)
{
    int n_strangers = 0;
    for (const struct watch_host *h = s->hosts; h; h = h->next)
        n_strangers += h->fd >= 0 && !h->name[0];
    for (int fd; n_strangers < STRANGERS_MOST &&
                 (fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
        struct watch_host *h = calloc(1, sizeof *h);
        if (!h) {
            close(fd);
            return;
        }
        *h = (struct watch_host){.next = s->hosts, .fd = fd, .heard = clock_seconds()};
        s->hosts = h;
        n_strangers++;
    }
}

/* -- what hosts tell ----------------------------------------------------------------- */

static bool is_token(const char *token, const char *line)
{
    unsigned char differs = 0; // all of it is compared, whatever the beginning
    size_t n = strlen(token);
    if (n == 0 || strlen(line) < n)
        return false;
    for (size_t i = 0; i < n; i++)
        differs |= (unsigned char)(token[i] ^ line[i]);
    return differs == 0;
}

#define RANK_FORMAT "rank %d %d %d %lf %lf %d %d %lld %lld %lld %d"

static void take_rank(struct watch_server *s, const struct watch_host *h,
                      const char *line)
{
    int rank, is_over, condition, phase, action, peer;
    long long detail, step, n_steps;
    double in_condition, quiet;
    if (sscanf(line, RANK_FORMAT, &rank, &is_over, &condition, &in_condition, &quiet,
               &phase, &action, &detail, &step, &n_steps, &peer) != 11 ||
        rank < 0 || rank >= s->n_ranks || condition < 0 ||
        condition >= N_RANK_CONDITIONS || phase < 0 || phase >= BEAT_N_PHASES ||
        action < 0 || action >= BEAT_N_ACTIONS || peer < BEAT_EVERYBODY ||
        peer >= s->n_ranks)
        return;
    s->ranks[rank] =
        (struct reported_rank){.by = h,
                               .at = clock_seconds(),
                               .seen = {.is_seen = true,
                                        .is_over = is_over != 0,
                                        .condition = (enum rank_condition)condition,
                                        .in_condition = in_condition,
                                        .quiet = quiet,
                                        .phase = (enum beat_phase)phase,
                                        .action = (enum beat_action)action,
                                        .detail = detail,
                                        .step = step,
                                        .n_steps = n_steps,
                                        .peer = peer,
                                        .host = h->name}};
}

static void take_line(struct watch_server *s, struct watch_host *h, const char *line)
{
    if (!h->name[0]) {
        if (is_token(s->token, line) && line[strlen(s->token)] == ' ')
            snprintf(h->name, sizeof h->name, "%.255s", line + strlen(s->token) + 1);
        if (!h->name[0])
            host_close(h);
    } else if (strncmp(line, "timeout ", 8) == 0) {
        s->hang_timeout = strtod(line + 8, NULL);
    } else {
        take_rank(s, h, line);
    }
}

static void listen_to(struct watch_server *s, struct watch_host *h)
{
    char buf[4096];
    ssize_t n = 0;
    while (h->fd >= 0 && (n = recv(h->fd, buf, sizeof buf, 0)) > 0) {
        h->heard = clock_seconds();
        for (ssize_t i = 0; i < n && h->fd >= 0; i++) {
            if (buf[i] != '\n' && h->n_line + 1 < sizeof h->line) {
                h->line[h->n_line++] = buf[i];
                continue;
            }
            h->line[h->n_line] = '\0';
            h->n_line = 0;
            take_line(s, h, h->line);
        }
    }
    if (h->fd >= 0 && (n == 0 || (errno != EAGAIN && errno != EINTR)))
        host_close(h);
    if (h->fd >= 0 && !h->name[0] && clock_seconds() - h->heard > TOKEN_WITHIN)
        host_close(h);
}

/* Since the last report of a rank it may have done anything; but a host that is silent
 * for long is lost. */
static void tell_seen(const struct watch_server *s, struct seen_rank *seen)
{
    double now = clock_seconds();
    for (int r = 0; r < s->n_ranks; r++) {
        const struct reported_rank *rank = &s->ranks[r];
        if (!rank->by)
            continue;
        double silent = now - rank->by->heard;
        seen[r] = rank->seen;
        seen[r].quiet += now - rank->at;
        seen[r].in_condition += now - rank->at;
        if (silent > OUT_OF_REACH_AFTER && !seen[r].is_over) {
            seen[r].condition = RANK_OUT_OF_REACH;
            seen[r].in_condition = silent;
        }
    }
}

static void answer(const struct watch_host *h, const char *word)
{
    if (h->fd >= 0 && h->name[0])
        (void)send(h->fd, word, strlen(word), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void watch_server_serve(struct watch_server *s, struct seen_rank *seen)
{
    if (s->fd < 0)
        return;
    take_connections(s);
    for (struct watch_host *h = s->hosts; h; h = h->next) {
        double before = h->heard;
        listen_to(s, h);
        if (h->heard > before)
            answer(h, "on\n");
    }
    tell_seen(s, seen);
}

void watch_server_end(struct watch_server *s)
{
    for (const struct watch_host *h = s->hosts; h; h = h->next)
        answer(h, "end\n");
}

/* -- reporting ----------------------------------------------------------------------- */

void watch_reporter_init(struct watch_reporter *r, const char *contact)
{
    *r = (struct watch_reporter){.fd = -1, .heard = clock_seconds()};
    snprintf(r->contact, sizeof r->contact, "%s", contact ? contact : "");
}

void watch_reporter_close(struct watch_reporter *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
}

/* Word `i` of the contact into buf; false: there is none. */
static bool contact_word(const char *contact, int i, char *buf, size_t size)
{
    for (; i > 0 && *contact; i--) {
        contact += strcspn(contact, " ");
        contact += strspn(contact, " ");
    }
    snprintf(buf, size, "%.*s", (int)strcspn(contact, " "), contact);
    return buf[0] != '\0';
}

/* The next address; connecting goes on by itself, and the first report is the token. */
static void try_next(struct watch_reporter *r)
{
    char token[64], port[16], address[64];
    struct sockaddr_in to = {.sin_family = AF_INET};
    watch_reporter_close(r);
    if (!contact_word(r->contact, 2 + r->next_address++, address, sizeof address)) {
        r->next_address = 0;
        return;
    }
    if (!contact_word(r->contact, 0, token, sizeof token) ||
        !contact_word(r->contact, 1, port, sizeof port) ||
        inet_pton(AF_INET, address, &to.sin_addr) != 1)
        return;
    to.sin_port = htons((uint16_t)atoi(port));
    r->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    r->n_answer = 0;
    r->reported = 0;
    if (r->fd >= 0 && connect(r->fd, (struct sockaddr *)&to, sizeof to) &&
        errno != EINPROGRESS)
        watch_reporter_close(r);
}

static void write_report(FILE *out, const struct seen_rank *seen, int n_ranks,
                         double hang_timeout)
{
    if (hang_timeout > 0)
        fprintf(out, "timeout %g\n", hang_timeout);
    for (int i = 0; i < n_ranks; i++) {
        const struct seen_rank *s = &seen[i];
        if (s->is_seen)
            fprintf(out, "rank %d %d %d %.3f %.3f %d %d %lld %lld %lld %d\n", i,
                    s->is_over, (int)s->condition, s->in_condition, s->quiet,
                    (int)s->phase, (int)s->action, (long long)s->detail,
                    (long long)s->step, (long long)s->n_steps, s->peer);
    }
}

/* What does not fit into the socket is lost with the connection: a host that cannot send
 * its report is not heard of, which is what there is to tell. */
static void report(struct watch_reporter *r, const struct seen_rank *seen, int n_ranks,
                   double hang_timeout)
{
    char token[64], host[256] = "", *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    if (!out)
        return;
    gethostname(host, sizeof host - 1);
    contact_word(r->contact, 0, token, sizeof token);
    if (r->reported <= 0)
        fprintf(out, "%s %s\n", token, host);
    write_report(out, seen, n_ranks, hang_timeout);
    if (fclose(out) == 0) {
        ssize_t sent = send(r->fd, text, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        bool is_connecting = sent < 0 && (errno == EAGAIN || errno == ENOTCONN);
        if (sent == (ssize_t)n)
            r->reported = clock_seconds();
        else if (!is_connecting)
            watch_reporter_close(r);
    }
    free(text);
}

/* True: "end" has come. */
static bool hear(struct watch_reporter *r)
{
    char buf[256];
    ssize_t n;
    bool is_end = false;
    while ((n = recv(r->fd, buf, sizeof buf, 0)) > 0)
        for (ssize_t i = 0; i < n; i++) {
            r->heard = clock_seconds();
            if (buf[i] != '\n' && r->n_answer + 1 < sizeof r->answer) {
                r->answer[r->n_answer++] = buf[i];
                continue;
            }
            r->answer[r->n_answer] = '\0';
            r->n_answer = 0;
            is_end = is_end || strcmp(r->answer, "end") == 0;
        }
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOTCONN))
        watch_reporter_close(r);
    return is_end;
}

bool watch_reporter_tick(struct watch_reporter *r, const struct seen_rank *seen,
                         int n_ranks, double hang_timeout)
{
    double now = clock_seconds();
    bool is_end = false;
    if (!r->contact[0])
        return false;
    if (r->fd >= 0)
        is_end = hear(r);
    double silent = now - (r->heard > r->tried ? r->heard : r->tried);
    bool is_dead = r->fd < 0 ? now - r->tried > REPORT_EVERY : silent > TRY_EVERY * 2;
    if (is_dead) {
        r->tried = now;
        try_next(r);
    }
    if (r->fd >= 0 && now - r->reported >= REPORT_EVERY)
        report(r, seen, n_ranks, hang_timeout);
    return is_end;
}
