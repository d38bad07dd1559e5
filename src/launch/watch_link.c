#include "launch/watch_link.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPORT_EVERY 0.5     // seconds
#define OUT_OF_REACH_AFTER 3 // seconds of silence; it matters when nobody moves

struct report { // a datagram
    char token[WATCH_TOKEN_BYTES], host[256];
    double hang_timeout;
    int failed_rank; // of that host, first of all; -1: none
    char reason[BEAT_REASON_BYTES];
    int n_ranks;
    struct {
        int rank;
        struct seen_rank seen; // its pointers mean nothing
    } ranks[8];
};

struct watch_host {
    struct watch_host *next;
    double heard;       // clock_seconds()
    struct report last; // the name and the failure
};

struct reported_rank {
    const struct watch_host *by; // NULL: nobody told of it
    struct seen_rank seen;
    double at; // clock_seconds()
};

/* -- listening ----------------------------------------------------------------------- */

/* Token, port and all addresses of this host; the loopback where there is no other. */
static int write_contact(struct watch_server *s, char contact[WATCH_CONTACT_BYTES])
{
    unsigned char random[(WATCH_TOKEN_BYTES - 1) / 2];
    struct sockaddr_in at = {0};
    socklen_t n_at = sizeof at;
    struct ifaddrs *all;
    char address[INET_ADDRSTRLEN];
    if (getsockname(s->fd, (struct sockaddr *)&at, &n_at) ||
        getrandom(random, sizeof random, 0) != (ssize_t)sizeof random || getifaddrs(&all))
        return -1;
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(s->token + 2 * i, sizeof s->token - 2 * i, "%02x", random[i]);
    size_t n_head = (size_t)snprintf(contact, WATCH_CONTACT_BYTES, "%s %d", s->token,
                                     ntohs(at.sin_port));
    size_t used = n_head;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET ||
            (i->ifa_flags & IFF_LOOPBACK))
            continue;
        memcpy(&at, i->ifa_addr, sizeof at);
        inet_ntop(AF_INET, &at.sin_addr, address, sizeof address);
        if (used + strlen(address) + 2 < WATCH_CONTACT_BYTES)
            used += (size_t)snprintf(contact + used, WATCH_CONTACT_BYTES - used, " %s",
                                     address);
    }
    if (used == n_head)
        snprintf(contact + used, WATCH_CONTACT_BYTES - used, " 127.0.0.1");
    freeifaddrs(all);
    return 0;
}

int watch_server_open(struct watch_server *s, int n_ranks,
                      char contact[WATCH_CONTACT_BYTES], struct error *err)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = INADDR_ANY};
    *s = (struct watch_server){.n_ranks = n_ranks};
    s->ranks = calloc((size_t)n_ranks, sizeof *s->ranks);
    s->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->ranks && s->fd >= 0 && bind(s->fd, (struct sockaddr *)&any, sizeof any) == 0 &&
        write_contact(s, contact) == 0)
        return 0;
    contact[0] = '\0';
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

static bool is_token(const char *token, const char *told)
{
    unsigned char differs = 0; // all of it is compared, whatever the beginning
    for (size_t i = 0; i < WATCH_TOKEN_BYTES; i++)
        differs |= (unsigned char)(token[i] ^ told[i]);
    return differs == 0 && token[0];
}

static struct watch_host *find_host(struct watch_server *s, const char *name)
{
    struct watch_host *h = s->hosts;
    while (h && strcmp(h->last.host, name) != 0)
        h = h->next;
    if (!h && (h = calloc(1, sizeof *h))) {
        h->next = s->hosts;
        s->hosts = h;
    }
    return h;
}

/* False: it is a stranger's. */
static bool take_report(struct watch_server *s, struct report *told)
{
    told->host[sizeof told->host - 1] = told->reason[sizeof told->reason - 1] = '\0';
    struct watch_host *h =
        is_token(s->token, told->token) ? find_host(s, told->host) : NULL;
    if (!h)
        return false;
    h->heard = clock_seconds();
    h->last = *told;
    s->hang_timeout = told->hang_timeout > 0 ? told->hang_timeout : s->hang_timeout;
    for (int i = 0; i < told->n_ranks && i < (int)ARRAY_LEN(told->ranks); i++) {
        int rank = told->ranks[i].rank;
        struct seen_rank seen = told->ranks[i].seen;
        if (rank < 0 || rank >= s->n_ranks ||
            (unsigned)seen.condition >= N_RANK_CONDITIONS ||
            (unsigned)seen.phase >= BEAT_N_PHASES || seen.peer >= s->n_ranks)
            continue;
        seen.host = h->last.host;
        seen.reason = told->failed_rank == rank ? h->last.reason : NULL;
        s->ranks[rank] = (struct reported_rank){.by = h, .seen = seen, .at = h->heard};
    }
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
    struct report told;
    struct sockaddr_in from;
    socklen_t n_from = sizeof from;
    char answer = (char)order;
    if (s->fd < 0)
        return;
    for (ssize_t n; (n = recvfrom(s->fd, &told, sizeof told, 0, (struct sockaddr *)&from,
                                  &n_from)) >= 0;
         n_from = sizeof from)
        if (n == (ssize_t)sizeof told && take_report(s, &told))
            (void)sendto(s->fd, &answer, 1, 0, (struct sockaddr *)&from, n_from);
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
static void send_report(const struct watch_reporter *r, const struct report *report)
{
    char contact[WATCH_CONTACT_BYTES], *rest, *address;
    struct sockaddr_in to = {.sin_family = AF_INET};
    if (r->is_answered)
        (void)send(r->fd, report, sizeof *report, 0);
    memcpy(contact, r->contact, sizeof contact);
    strtok_r(contact, " ", &rest);
    const char *port = strtok_r(NULL, " ", &rest);
    to.sin_port = htons((uint16_t)(port ? atoi(port) : 0));
    while (!r->is_answered && (address = strtok_r(NULL, " ", &rest)))
        if (inet_pton(AF_INET, address, &to.sin_addr) == 1)
            (void)sendto(r->fd, report, sizeof *report, 0, (struct sockaddr *)&to,
                         sizeof to);
}

static void report_all(struct watch_reporter *r, const struct seen_rank *seen,
                       int n_ranks, double hang_timeout)
{
    struct report report = {.hang_timeout = hang_timeout, .failed_rank = -1};
    snprintf(report.token, sizeof report.token, "%.*s", (int)strcspn(r->contact, " "),
             r->contact);
    gethostname(report.host, sizeof report.host - 1);
    for (int i = 0; i < n_ranks; i++)
        if (seen[i].is_seen && seen[i].reason) {
            report.failed_rank = i;
            snprintf(report.reason, sizeof report.reason, "%s", seen[i].reason);
        }
    for (int i = 0; i < n_ranks; i++) {
        if (seen[i].is_seen) {
            report.ranks[report.n_ranks].rank = i;
            report.ranks[report.n_ranks++].seen = seen[i];
        }
        if (report.n_ranks == ARRAY_LEN(report.ranks) || i == n_ranks - 1) {
            send_report(r, &report);
            report.n_ranks = 0;
        }
    }
    r->reported = clock_seconds();
}

enum watch_order watch_reporter_tick(struct watch_reporter *r,
                                     const struct seen_rank *seen, int n_ranks,
                                     double hang_timeout, bool has_news)
{
    char answer, order = WATCH_ON;
    struct sockaddr_in from;
    socklen_t n_from = sizeof from;
    while (r->fd >= 0 &&
           recvfrom(r->fd, &answer, 1, 0, (struct sockaddr *)&from, &n_from) == 1) {
        order = answer > order ? answer : order;
        r->heard = clock_seconds();
        if (!r->is_answered)
            r->is_answered = connect(r->fd, (struct sockaddr *)&from, n_from) == 0;
        n_from = sizeof from;
    }
    if (r->fd >= 0 && (has_news || clock_seconds() - r->reported >= REPORT_EVERY))
        report_all(r, seen, n_ranks, hang_timeout);
    return (enum watch_order)order;
}
