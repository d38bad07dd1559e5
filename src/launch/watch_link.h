// clang-format off
/*
 * watch_link - how watchers of other hosts report to the main watcher of a job.
 *
 * A connection of its own, never through the ranks. Text, one fact per line:
 *
 *     TOKEN HOST                 first, from the host: who does not know the token of the
 *                                job is cut off
 *     rank 3 0 0 12.5 2.0 ...    one line for each of its ranks, and
 *     timeout 5                  the hang_timeout they were given, twice a second
 *     on                         the answer: the job goes on
 *     end                        or: it hangs, have your ranks write their stacks, and
 *                                kill them
 *
 * A host that is silent is out of reach, whoever closed the connection; it may come back.
 * Nothing here waits: all calls return at once.
 */
// clang-format on
#ifndef LAUNCH_WATCH_LINK_H
#define LAUNCH_WATCH_LINK_H

#include "base/base.h"
#include "base/error.h"
#include "launch/hang.h"

#define WATCH_CONTACT_BYTES 256 // "TOKEN PORT ADDRESS ADDRESS ...": where to report

/* -- the main watcher ---------------------------------------------------------------- */

struct watch_host;
struct reported_rank;

struct watch_server {
    int fd; // -1: it does not listen
    char token[40];
    struct watch_host *hosts; // all connections there were, linked
    int n_ranks;
    struct reported_rank *ranks; // (n_ranks) what was last told of each
    double hang_timeout;         // they told; 0: none
};

MUST_CHECK int watch_server_open(struct watch_server *s, int n_ranks, struct error *err);
void watch_server_close(struct watch_server *s); // one that was not opened, too
/* What a host must know to report here. */
void watch_server_contact(const struct watch_server *s,
                          char contact[WATCH_CONTACT_BYTES]);

/* Take what has come, answer, and fill seen[r] for the ranks of other hosts. */
void watch_server_serve(struct watch_server *s, struct seen_rank *seen);
/* Tell all of them that the job ends. */
void watch_server_end(struct watch_server *s);

/* -- a watcher of another host ------------------------------------------------------- */

struct watch_reporter {
    char contact[WATCH_CONTACT_BYTES]; // "": nobody to report to
    int fd;                            // -1: not connected
    int next_address;                  // of the contact, to try
    double tried, reported, heard;     // clock_seconds()
    char answer[64];                   // the part of a line that has come
    size_t n_answer;
};

void watch_reporter_init(struct watch_reporter *r, const char *contact);
void watch_reporter_close(struct watch_reporter *r);
/* Connect, or report what is seen of the ranks of this host. True: the job ends. */
bool watch_reporter_tick(struct watch_reporter *r, const struct seen_rank *seen,
                         int n_ranks, double hang_timeout);

#endif
