#include "launch/watch_link.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPORT_EVERY 0.5     // seconds
#define OUT_OF_REACH_AFTER 3 // seconds of silence; it matters when nobody moves
#define DATAGRAM_BYTES 1200  // then the next one begins
#define DATAGRAM_BYTES_MOST 4096

static const char *const orders[] = {
    [WATCH_ON] = "on", [WATCH_STOP] = "stop", [WATCH_END] = "end"};

struct watch_host {
    struct watch_host *next;
    char name[256];
    double heard;    // clock_seconds()
    int failed_rank; // whose reason follows; -1: none
    bool is_lasting;
    char reason[BEAT_REASON_BYTES];
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
    *s = (struct watch_server){.n_ranks = n_ranks};
    s->ranks = calloc((size_t)n_ranks, sizeof *s->ranks);
    s->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->ranks && s->fd >= 0 && bind(s->fd, (struct sockaddr *)&any, sizeof any) == 0 &&
        make_token(s->token, sizeof s->token) == 0)
        return 0;
    error_set(err, ERROR_RUNTIME, "cannot listen to watchers of other hosts: %s",
              strerror(errno));
    watch_server_close(s);
    return -1;
}

void watch_server_close(struct watch_server *s)
{
    for (struct watch_host *h = s->hosts, *next; h; h = next) {
        next = h->next;
        free(h);
    }
    if (s->ranks && s->fd >= 0)
        close(s->fd);
    free(s->ranks);
    *s = (struct watch_server){.fd = -1};
}

/* All addresses of this host; the loopback only where there is no other. */
void watch_server_contact(const struct watch_server *s, char contact[WATCH_CONTACT_BYTES])
{
    struct sockaddr_in at = {0};
    socklen_t n_at = sizeof at;
    struct ifaddrs *all = NULL;
    contact[0] = '\0';
    if (s->fd < 0 || getsockname(s->fd, (struct sockaddr *)&at, &n_at) ||
        getifaddrs(&all))
        return;
    size_t used = (size_t)snprintf(contact, WATCH_CONTACT_BYTES, "%s %d", s->token,
                                   ntohs(at.sin_port));
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        char text[INET_ADDRSTRLEN];
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET ||
            (i->ifa_flags & IFF_LOOPBACK))
            continue;
        memcpy(&at, i->ifa_addr, sizeof at);
        inet_ntop(AF_INET, &at.sin_addr, text, sizeof text);
        if (used + strlen(text) + 2 < WATCH_CONTACT_BYTES)
            used +=
                (size_t)snprintf(contact + used, WATCH_CONTACT_BYTES - used, " %s", text);
    }
    if (!strchr(strchr(contact, ' ') + 1, ' '))
        snprintf(contact + used, WATCH_CONTACT_BYTES - used, " 127.0.0.1");
    freeifaddrs(all);
}

/* -- what hosts tell ----------------------------------------------------------------- */

static bool is_token(const char *token, const char *text)
{
    unsigned char differs = 0; // all of it is compared, whatever the beginning
    size_t n = strlen(token);
    if (n == 0 || strlen(text) < n)
        return false;
    for (size_t i = 0; i < n; i++)
        differs |= (unsigned char)(token[i] ^ text[i]);
    return differs == 0;
}

static struct watch_host *find_host(struct watch_server *s, const char *name)
{
    struct watch_host *h = s->hosts;
    while (h && strcmp(h->name, name) != 0)
        h = h->next;
    if (h || !(h = calloc(1, sizeof *h)))
        return h;
    *h = (struct watch_host){.next = s->hosts, .failed_rank = -1};
    snprintf(h->name, sizeof h->name, "%s", name);
    s->hosts = h;
    return h;
}

#define RANK_LINE "rank %d %d %d %d %lf %lf %d %d %lld %lld %lld %d %d %d %lld %d"

static void take_rank(struct watch_server *s, const struct watch_host *h,
                      const char *line)
{
    int rank, pid, is_over, condition, phase, action, peer, state, code, exit_signal;
    long long detail, step, n_steps, said_ns;
    double in_condition, quiet;
    if (sscanf(line, RANK_LINE, &rank, &pid, &is_over, &condition, &in_condition, &quiet,
               &phase, &action, &detail, &step, &n_steps, &peer, &state, &code, &said_ns,
               &exit_signal) != 16 ||
        rank < 0 || rank >= s->n_ranks || condition < 0 ||
        condition >= N_RANK_CONDITIONS || phase < 0 || phase >= BEAT_N_PHASES ||
        action < 0 || action >= BEAT_N_ACTIONS || peer < BEAT_EVERYBODY ||
        peer >= s->n_ranks || state < 0 || state >= BEAT_N_STATES)
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
                                        .host = h->name,
                                        .pid = pid,
                                        .state = (enum beat_state)state,
                                        .code = code,
                                        .said_ns = said_ns,
                                        .exit_signal = exit_signal}};
}

static void take_line(struct watch_server *s, struct watch_host *h, const char *line)
{
    int rank, is_lasting, at = 0;
    if (sscanf(line, "why %d %d %n", &rank, &is_lasting, &at) == 2 && at > 0) {
        h->failed_rank = rank;
        h->is_lasting = is_lasting != 0;
        snprintf(h->reason, sizeof h->reason, "%s", line + at);
    } else {
        take_rank(s, h, line);
    }
}

/* False: it is a stranger's. */
static bool take_datagram(struct watch_server *s, char *text)
{
    char name[256], *rest, *line = strtok_r(text, "\n", &rest);
    double timeout;
    if (!line || !is_token(s->token, line) ||
        sscanf(line + strlen(s->token), " %255s %lf", name, &timeout) != 2)
        return false;
    struct watch_host *h = find_host(s, name);
    if (!h)
        return false;
    h->heard = clock_seconds();
    s->hang_timeout = timeout > 0 ? timeout : s->hang_timeout;
    while ((line = strtok_r(NULL, "\n", &rest)))
        take_line(s, h, line);
    return true;
}

/* Since the last report of a rank it may have done anything; but a host that is silent
 * for long is lost. */
static void fill_seen(const struct watch_server *s, struct seen_rank *seen)
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
        if (rank->by->failed_rank == r) {
            seen[r].reason = rank->by->reason;
            seen[r].is_lasting = rank->by->is_lasting;
        }
        if (silent > OUT_OF_REACH_AFTER && !seen[r].is_over &&
            seen[r].condition != RANK_GONE) {
            seen[r].condition = RANK_OUT_OF_REACH;
            seen[r].in_condition = silent;
        }
    }
}

void watch_server_serve(struct watch_server *s, enum watch_order order,
                        struct seen_rank *seen)
{
    char text[DATAGRAM_BYTES_MOST];
    struct sockaddr_in from;
    socklen_t n_from = sizeof from;
    if (s->fd < 0)
        return;
    for (ssize_t n; (n = recvfrom(s->fd, text, sizeof text - 1, 0,
                                  (struct sockaddr *)&from, &n_from)) >= 0;) {
        text[n] = '\0';
        if (take_datagram(s, text))
            (void)sendto(s->fd, orders[order], strlen(orders[order]), 0,
                         (struct sockaddr *)&from, n_from);
        n_from = sizeof from;
    }
    fill_seen(s, seen);
}

/* -- reporting ----------------------------------------------------------------------- */

void watch_reporter_init(struct watch_reporter *r, const char *contact)
{
    *r = (struct watch_reporter){.fd = -1, .heard = clock_seconds()};
    snprintf(r->contact, sizeof r->contact, "%s", contact ? contact : "");
    if (r->contact[0])
        r->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

void watch_reporter_close(struct watch_reporter *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
}

/* To all addresses, until one has answered. What is lost is said again. */
static void send_text(const struct watch_reporter *r, const char *text, size_t n)
{
    char contact[WATCH_CONTACT_BYTES], *rest;
    struct sockaddr_in to = {.sin_family = AF_INET};
    if (r->is_answered) {
        (void)send(r->fd, text, n, 0);
        return;
    }
    memcpy(contact, r->contact, sizeof contact);
    strtok_r(contact, " ", &rest);
    const char *port = strtok_r(NULL, " ", &rest), *address;
    to.sin_port = htons((uint16_t)(port ? atoi(port) : 0));
    while ((address = strtok_r(NULL, " ", &rest)))
        if (inet_pton(AF_INET, address, &to.sin_addr) == 1)
            (void)sendto(r->fd, text, n, 0, (struct sockaddr *)&to, sizeof to);
}

static size_t write_rank(char *text, size_t size, int rank, const struct seen_rank *s)
{
    int n = snprintf(text, size,
                     "rank %d %d %d %d %.3f %.3f %d %d %lld %lld %lld %d %d %d %lld %d\n",
                     rank, s->pid, s->is_over, (int)s->condition, s->in_condition,
                     s->quiet, (int)s->phase, (int)s->action, (long long)s->detail,
                     (long long)s->step, (long long)s->n_steps, s->peer, (int)s->state,
                     s->code, (long long)s->said_ns, s->exit_signal);
    if (s->reason && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, "why %d %d %s\n", rank, s->is_lasting,
                      s->reason);
    return (size_t)i64_min(n, (int64_t)size - 1);
}

static void report(struct watch_reporter *r, const struct seen_rank *seen, int n_ranks,
                   double hang_timeout)
{
    char text[DATAGRAM_BYTES_MOST], host[256] = "";
    gethostname(host, sizeof host - 1);
    size_t n_head =
        (size_t)snprintf(text, sizeof text, "%.*s %s %g\n", (int)strcspn(r->contact, " "),
                         r->contact, host, hang_timeout);
    size_t n = n_head;
    for (int i = 0; i < n_ranks; i++) {
        if (seen[i].is_seen)
            n += write_rank(text + n, sizeof text - n, i, &seen[i]);
        if (n > DATAGRAM_BYTES || i == n_ranks - 1) {
            send_text(r, text, n);
            n = n_head;
        }
    }
    r->reported = clock_seconds();
}

static enum watch_order take_answers(struct watch_reporter *r)
{
    enum watch_order order = WATCH_ON;
    char text[16];
    struct sockaddr_in from;
    socklen_t n_from = sizeof from;
    for (ssize_t n; (n = recvfrom(r->fd, text, sizeof text - 1, 0,
                                  (struct sockaddr *)&from, &n_from)) >= 0;) {
        text[n] = '\0';
        for (size_t i = 0; i < ARRAY_LEN(orders); i++)
            if (strcmp(text, orders[i]) == 0 && i > order)
                order = (enum watch_order)i;
        r->heard = clock_seconds();
        if (!r->is_answered)
            r->is_answered = connect(r->fd, (struct sockaddr *)&from, n_from) == 0;
        n_from = sizeof from;
    }
    return order;
}

enum watch_order watch_reporter_tick(struct watch_reporter *r,
                                     const struct seen_rank *seen, int n_ranks,
                                     double hang_timeout, bool has_news)
{
    if (r->fd < 0)
        return WATCH_ON;
    enum watch_order order = take_answers(r);
    if (has_news || clock_seconds() - r->reported >= REPORT_EVERY)
        report(r, seen, n_ranks, hang_timeout);
    return order;
}
