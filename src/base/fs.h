/*
 * fs - files, with errors that are sentences and writes that survive a crash.
 *
 * All paths are borrowed. Nothing here follows from the environment.
 */
#ifndef BASE_FS_H
#define BASE_FS_H

#include "base/base.h"
#include "base/error.h"

#include <sys/types.h>

/* -- whole files --------------------------------------------------------------------- */

/* Is `reason`, an errno, about the path (ERROR_INPUT): there is no such file, or none
 * that could ever be read? Anything else is the machine's (ERROR_RUNTIME): a disk that
 * fails, a server that does not answer or does not let us in. It may work later, and says
 * nothing of what the file holds. */
enum error_kind fs_error_kind(int reason);

/* Read the file whole; *data is malloc'ed with a NUL after the last byte, caller frees.
 * A file larger than max_bytes is refused before anything is allocated. Errors are of
 * fs_error_kind(). */
MUST_CHECK int fs_read_all(const char *path, size_t max_bytes, char **data, size_t *n,
                           struct error *err);
/* The same; each wait for the bytes of a pipe takes `seconds` at most, and then fails:
 * FS_PIPE_SECONDS for fs_read_all(). */
MUST_CHECK int fs_read_all_within(const char *path, size_t max_bytes, double seconds,
                                  char **data, size_t *n, struct error *err);
#define FS_PIPE_SECONDS 60.0

/* The same, but what is not a file is refused: a pipe would have us wait. */
MUST_CHECK int fs_read_regular(const char *path, size_t max_bytes, char **data, size_t *n,
                               struct error *err);

/* Replace the file at `path` by the n bytes at `data`, or leave it as it was: a reader,
 * or a restart after a crash, sees the old file or the new one, never a mix. */
MUST_CHECK int fs_write_atomic(const char *path, const void *data, size_t n,
                               struct error *err);

/* -- pieces -------------------------------------------------------------------------- */

/* Write or read exactly n bytes (at `offset` for the p-versions), through short counts
 * and EINTR; -1 with errno set otherwise. A short file reads as errno = ENODATA. */
MUST_CHECK int fs_write_exact(int fd, const void *data, size_t n);
MUST_CHECK int fs_pwrite_exact(int fd, const void *data, size_t n, off_t offset);
MUST_CHECK int fs_pread_exact(int fd, void *data, size_t n, off_t offset);

/* Create the file at `path`, open with `flags` more than O_CREAT: a new one, never what a
 * name that was there leads to, which is removed first. -1 with errno. */
MUST_CHECK int fs_create(const char *path, int flags, mode_t mode);

/* Where a descriptor with O_DIRECT may begin and end to read, and in memory. */
#define FS_DIRECT_UNIT ((size_t)4096)
/* The size of a buffer for any n bytes, read in whole units. */
#define FS_DIRECT_BYTES(n) ((n) + 2 * FS_DIRECT_UNIT)
/* Read n bytes at `offset` with whatever belongs to the same units into `buffer`, which
 * begins at a unit. The place of the first of the n, or NULL with errno set. */
void *fs_pread_direct(int fd, void *buffer, size_t n, off_t offset);

/* The page cache holds most of the file, by a sample. */
bool fs_is_cached(int fd);

/* -- names --------------------------------------------------------------------------- */

bool fs_exists(const char *path);
bool fs_is_directory(const char *path);
/* Is the open file, which was opened without following a link, still the one of that name?
 * 1, 0, or -1 with errno when that is not known. */
int fs_is_same_file(const char *path, int fd);

enum fs_type { FS_NOTHING, FS_FILE, FS_DIRECTORY, FS_OTHER };
/* What `path` leads to, where taking a disk that does not answer for a file that is not
 * there would do harm: -1, of kind ERROR_RUNTIME, when it is not known now. */
MUST_CHECK int fs_look(const char *path, enum fs_type *type, struct error *err);
/* mkdir -p. */
MUST_CHECK int fs_make_directories(const char *path, struct error *err);
/* Make the names in directory `path` survive power loss. */
MUST_CHECK int fs_sync_directory(const char *path, struct error *err);
/* rename(), then sync the directory that holds `to`. */
MUST_CHECK int fs_rename(const char *from, const char *to, struct error *err);
/* rm -r; a path that does not exist is fine. Never follows symbolic links. */
MUST_CHECK int fs_remove_tree(const char *path, struct error *err);

struct fs_names { // sorted; release with fs_names_release()
    char **names;
    int64_t n_names;
};
/* The names in a directory (without . and ..), sorted bytewise. */
MUST_CHECK int fs_list(const char *path, struct fs_names *list, struct error *err);
void fs_names_release(struct fs_names *list);

/* "dir/name" into buf; a result that does not fit is an error. */
MUST_CHECK int fs_join(char *buf, size_t size, const char *dir, const char *name,
                       struct error *err);

/* -- free space ---------------------------------------------------------------------- */

/* Bytes an ordinary write could still take on the file system that holds `path`. */
MUST_CHECK int fs_free_bytes(const char *path, uint64_t *bytes, struct error *err);

/* -- output that the user names ------------------------------------------------------ */

/* Write a file whole. A regular file, or one that is not there yet, is replaced at once
 * or stays as it was (fs_write_atomic()). Anything else is written to and never replaced:
 * a device, a pipe, and what /dev/stdout and its like stand for. A link stays a link: the
 * file that it names is what is replaced. (Files in directories of our own, where a link
 * may have been planted, are for fs_write_atomic() alone.) A named pipe must find a
 * reader within FS_READER_SECONDS. */
#define FS_READER_SECONDS 10
MUST_CHECK int fs_write_output(const char *path, const void *data, size_t n,
                               struct error *err);

/* Is there something at `path` that is written to, not replaced? What was written to it
 * cannot be taken back. */
bool fs_is_stream(const char *path);

#endif
