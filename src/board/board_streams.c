#include "board/board_streams.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define LOOK_SECONDS 5.0   // facts change by themselves: a run falls silent
#define ALIVE_SECONDS 15.0 // a comment that finds out which pages are gone
#define BLOCK_BYTES 4096

struct board_stream {
    struct board_streams *all;
    struct MHD_Connection *connection;
    bool is_waiting;       // suspended, until a tick
    uint64_t n_seen;       // events
    bool needs_comment;    // to see whether anybody is there
    struct board_text out; // what is on its way
    int64_t n_sent;        // of that
};

void board_streams_init(struct board_streams *s, struct board *b)
{
    *s = (struct board_streams){.board = b};
    pthread_mutex_init(&s->mutex, NULL);
}

/* Called with the mutex held. */
static void wake(struct board_stream *stream)
{
    if (stream->is_waiting) {
        stream->is_waiting = false;
        MHD_resume_connection(stream->connection);
    }
}

void board_streams_end(struct board_streams *s)
{
    pthread_mutex_lock(&s->mutex);
    s->is_ending = true;
    for (int64_t i = 0; i < s->n_streams; i++)
        wake(s->streams[i]);
    pthread_mutex_unlock(&s->mutex);
}

void board_streams_release(struct board_streams *s)
{
    board_text_release(&s->event);
    pthread_mutex_destroy(&s->mutex);
}

static void add_event(struct board_stream *stream)
{
    struct board_streams *all = stream->all;
    board_text_reset(&stream->out);
    stream->n_sent = 0;
    if (stream->n_seen < all->n_events)
        board_text_add(&stream->out, all->event.bytes, (size_t)all->event.n);
    else if (stream->needs_comment)
        board_text_put(&stream->out, ":\n\n");
    stream->n_seen = all->n_events;
    stream->needs_comment = false;
}

/* The library wants up to n_most bytes for this page. */
static ssize_t read_stream(void *context, uint64_t position, char *bytes, size_t n_most)
{
    struct board_stream *stream = context;
    struct board_streams *all = stream->all;
    ssize_t n = 0;
    (void)position;
    pthread_mutex_lock(&all->mutex);
    if (stream->n_sent == stream->out.n)
        add_event(stream);
    if (all->is_ending || stream->out.is_broken) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else if (stream->n_sent < stream->out.n) {
        n = (ssize_t)i64_min((int64_t)n_most, stream->out.n - stream->n_sent);
        memcpy(bytes, stream->out.bytes + stream->n_sent, (size_t)n);
        stream->n_sent += n;
    } else {
        stream->is_waiting = true;
        MHD_suspend_connection(stream->connection);
    }
    pthread_mutex_unlock(&all->mutex);
    return n;
}

static void free_stream(void *context)
{
    struct board_stream *stream = context;
    struct board_streams *all = stream->all;
    pthread_mutex_lock(&all->mutex);
    for (int64_t i = 0; i < all->n_streams; i++)
        if (all->streams[i] == stream) {
            all->streams[i] = all->streams[--all->n_streams];
            break;
        }
    pthread_mutex_unlock(&all->mutex);
    board_text_release(&stream->out);
    free(stream);
}

/* Called with the mutex held. Makes an event if the runs are not what the last one said. */
static void make_event(struct board_streams *s)
{
    struct board_text now = {0};
    board_text_put(&now, "data: {\"runs\":");
    board_write_runs(s->board, &now);
    board_text_put(&now, "}\n\n");
    bool is_new =
        !now.is_broken &&
        (now.n != s->event.n || memcmp(now.bytes, s->event.bytes, (size_t)now.n) != 0);
    if (is_new) {
        board_text_release(&s->event);
        s->event = now;
        s->n_events++;
    } else {
        board_text_release(&now);
    }
}

struct MHD_Response *board_streams_response(struct board_streams *s,
                                            struct MHD_Connection *connection)
{
    struct board_stream *stream = calloc(1, sizeof *stream);
    struct MHD_Response *response = NULL;
    if (!stream)
        return NULL;
    stream->all = s;
    stream->connection = connection;
    pthread_mutex_lock(&s->mutex);
    bool has_room = s->n_streams < BOARD_STREAMS_MOST && !s->is_ending;
    if (has_room) {
        make_event(s);
        s->streams[s->n_streams++] = stream;
    }
    pthread_mutex_unlock(&s->mutex);
    if (has_room)
        response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES,
                                                     read_stream, stream, free_stream);
    if (!response) {
        free_stream(stream);
        return NULL;
    }
    (void)MHD_add_response_header(response, "Content-Type", "text/event-stream");
    return response;
}

void board_streams_tick(struct board_streams *s)
{
    double now = clock_seconds();
    uint64_t version = board_version(s->board);
    pthread_mutex_lock(&s->mutex);
    uint64_t n_before = s->n_events;
    if (s->n_streams > 0 && (version != s->version || now - s->made > LOOK_SECONDS)) {
        s->version = version;
        s->made = now;
        make_event(s);
    }
    bool is_quiet = now - s->told > ALIVE_SECONDS;
    if (s->n_events > n_before || is_quiet) {
        s->told = now;
        for (int64_t i = 0; i < s->n_streams; i++) {
            s->streams[i]->needs_comment = is_quiet;
            wake(s->streams[i]);
        }
    }
    pthread_mutex_unlock(&s->mutex);
}
