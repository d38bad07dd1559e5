/*
 * watch_link - how watchers of other hosts report to the main watcher of a job.
 *
 * Datagrams of their own, never through the ranks, twice a second, and at once when a rank
 * has said its last word. A job runs one program, so what is sent is its own structs; who
 * does not know the token of the job is not heard. The answer is what the job is to do.
 * Both sides repeat themselves, so that nothing depends on a single datagram. A host that
 * is silent is out of reach; it may come back. Nothing here waits.
 */
#ifndef LAUNCH_WATCH_LINK_H
#define LAUNCH_WATCH_LINK_H

#include "base/base.h"
#include "base/error.h"
#include "launch/hang.h"

#define WATCH_CONTACT_BYTES 256 // "TOKEN PORT ADDRESS ADDRESS ...": where to report
#define WATCH_TOKEN_BYTES 33

enum watch_order { WATCH_ON, WATCH_STOP, WATCH_END }; // go on; save and end; die

struct watch_server { // of the main watcher
    int fd;           // -1: it does not listen
    char token[WATCH_TOKEN_BYTES];
    struct watch_host *hosts; // all that were heard, linked
    int n_ranks;
    struct reported_rank *ranks; // (n_ranks) what was last told of each
    double hang_timeout;         // they told; 0: none
};

/* `contact` is what a host must know to report here. */
MUST_CHECK int watch_server_open(struct watch_server *s, int n_ranks,
                                 char contact[WATCH_CONTACT_BYTES], struct error *err);
void watch_server_close(struct watch_server *s); // one that was not opened, too
/* Take what has come, answer with `order`, and fill seen[r] for ranks of other hosts. */
void watch_server_serve(struct watch_server *s, enum watch_order order,
                        struct seen_rank *seen);

struct watch_reporter {                // of a watcher of another host
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
