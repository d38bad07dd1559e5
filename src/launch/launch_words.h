/*
 * launch_words - what mpiexec printed, understood.
 *
 * Pure: text in, facts out. Both families are read, whichever this program was built
 * with.
 */
#ifndef LAUNCH_LAUNCH_WORDS_H
#define LAUNCH_LAUNCH_WORDS_H

#include "base/base.h"

struct launch_death {  // of a rank, by a signal, as mpiexec tells it
    int rank;          // -1: not told (MPICH tells the next two instead)
    int pid;           // -1: not told
    char host[256];    // "": not told
    int signal_number; // -1: not told
};
void launch_words_death(const char *said, struct launch_death *death);

/* Whether mpiexec lost another host; its name, "" where it is not told (MPICH). */
bool launch_words_lost_host(const char *said, char host[256]);

/* Its sentences on one line, without frames, prefixes and repetitions, cut at size. */
void launch_words_condense(const char *said, char *text, size_t size);

#endif
