/*
 * device_table - the kernels of a device whose memory is not the host's, as a table that
 * takes the host's: so that what is written to try the processor's tables tries them, too.
 *
 * A call copies its tensors into memory of the device, each into an allocation of its own,
 * runs the kernel, and copies back what it wrote. On the way it sees to the contract of
 * kernels.h: what is only read has the same bits afterwards, bytes beside a tensor too,
 * and arrays of the host (tokens, targets, masks, first keys, lists of parts and of rows)
 * are spoiled as soon as the call returns, before the stream is synchronised.
 */
#ifndef TESTS_DEVICE_TABLE_H
#define TESTS_DEVICE_TABLE_H

#include "device/device.h"

/* Where a tensor lies in its allocation: at the beginning, aligned as well as can be; or
 * at the end, aligned to its elements alone, so that a page nobody may touch follows. */
enum placement { PLACED_FIRST, PLACED_LAST };

/* The table over this device's kernels, for streams of any device whose type has been
 * added; devices are of one kind. */
const struct kernels *device_table(void);
void device_table_add(struct device *dev); // of its type, from now on
void device_table_place(enum placement placement);

#endif
