// clang-format off
/*
 * watch_link - how watchers of other hosts report to the main watcher of a job.
 *
 * Datagrams of their own, never through the ranks. Text, one fact per line:
 *
 *     TOKEN HOST TIMEOUT     first in each: who does not know the token of the job is not
 *                            heard; the hang_timeout that the ranks were given, or 0
 *     rank 3 4711 0 0 ...    what is seen of a rank of that host
 *     why 3 0 cannot read    why a rank failed, and whether it would again
 *
 * twice a second, and at once when a rank has said its last word; the answer is what the
 * job is to do: "on", "stop" (save and end) or "end" (it hangs: write stacks, and die).
 * Both sides repeat themselves, so that nothing depends on a single datagram. A host that
 * is silent is out of reach; it may come back. Nothing here waits.
 */
// clang-format on
#ifndef LAUNCH_WATCH_LINK_H
#define LAUNCH_WATCH_LINK_H

#include "base/base.h"
#include "base/error.h"
#include "launch/hang.h"

#define WATCH_CONTACT_BYTES 256 // "TOKEN PORT ADDRESS ADDRESS ...": where to report

enum watch_order { WATCH_ON, WATCH_STOP, WATCH_END };

/* -- the main watcher ---------------------------------------------------------------- */

struct watch_server {
    int fd; // -1: it does not listen
    char token[40];
    struct watch_host *hosts; // all that were heard, linked
    int n_ranks;
    struct reported_rank *ranks; // (n_ranks) what was last told of each
    double hang_timeout;         // they told; 0: none
};

MUST_CHECK int watch_server_open(struct watch_server *s, int n_ranks, struct error *err);
void watch_server_close(struct watch_server *s); // one that was not opened, too
/* What a host must know to report here. */
void watch_server_contact(const struct watch_server *s,
                          char contact[WATCH_CONTACT_BYTES]);
/* Take what has come, answer with `order`, and fill seen[r] for ranks of other hosts. */
void watch_server_serve(struct watch_server *s, enum watch_order order,
                        struct seen_rank *seen);

/* -- a watcher of another host ------------------------------------------------------- */

struct watch_reporter {
    char contact[WATCH_CONTACT_BYTES]; // "": nobody to report to
    int fd;                            // -1: not open
    bool is_answered;                  // the address that answered is the only one now
    double reported, heard;            // clock_seconds()
};

void watch_reporter_init(struct watch_reporter *r, const char *contact);
void watch_reporter_close(struct watch_reporter *r);
/* Report what is seen of the ranks of this host, if it is time or there is news; what the
 * main watcher wants. */
enum watch_order watch_reporter_tick(struct watch_reporter *r,
                                     const struct seen_rank *seen, int n_ranks,
                                     double hang_timeout, bool has_news);

#endif
