/* clock - seconds that never jump: differences are durations, values mean nothing. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

double clock_seconds(void);

#endif
