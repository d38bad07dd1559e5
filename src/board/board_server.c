#include "board/board_server.h"

#include "base/clock.h"
#include "base/process.h"
#include "board/board_head.h"
#include "board/board_page.h"
#include "board/board_streams.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MOST 128
#define IDLE_SECONDS 20      // without a byte either way
#define REQUEST_SECONDS 10.0 // from the connection, or the last answer, to a request
#define CROWDED_SECONDS 2.0  // the same when there are many
#define ANSWER_SECONDS 120.0 // until an answer has been taken
#define BACKLOG 128
#define COOKIE_BYTES 64

struct connection {
    bool is_used, is_answering, is_stream;
    int fd;
    int uri_status; // of the refusal of the request's address, or 0
    double since;   // clock_seconds() of the last change of these
};

struct board_server {
    struct board *board;
    struct board_guard guard;
    struct MHD_Daemon *daemon;
    struct board_streams streams;
    int port;
    char cookie[COOKIE_BYTES];
    char token_place[BOARD_PLACE_BYTES];
    pthread_mutex_t mutex; // of the connections
    struct connection connections[CONNECTIONS_MOST];
};

/* -- connections --------------------------------------------------------------------- */

static void set_phase(struct board_server *server, struct connection *c,
                      bool is_answering, bool is_stream)
{
    if (!c)
        return;
    pthread_mutex_lock(&server->mutex);
    c->is_answering = is_answering;
    c->is_stream = is_stream;
    c->since = clock_seconds();
    pthread_mutex_unlock(&server->mutex);
}

static struct connection *add_connection(struct board_server *server, int fd)
{
    struct connection *free_one = NULL;
    pthread_mutex_lock(&server->mutex);
    for (size_t i = 0; i < ARRAY_LEN(server->connections) && !free_one; i++)
        if (!server->connections[i].is_used)
            free_one = &server->connections[i];
    if (free_one)
        *free_one =
            (struct connection){.is_used = true, .fd = fd, .since = clock_seconds()};
    pthread_mutex_unlock(&server->mutex);
    return free_one;
}

static void on_connection(void *context, struct MHD_Connection *connection,
                          void **socket_context, enum MHD_ConnectionNotificationCode what)
{
    struct board_server *server = context;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        *socket_context = info ? add_connection(server, info->connect_fd) : NULL;
        return;
    }
    struct connection *c = *socket_context;
    if (!c)
        return;
    pthread_mutex_lock(&server->mutex); // before its descriptor is closed
    *c = (struct connection){.is_used = false};
    pthread_mutex_unlock(&server->mutex);
}

static struct connection *connection_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* The library ends connections without a byte; a client that sends one now and then is
 * ended here. */
static void end_slow(struct board_server *server)
{
    double now = clock_seconds();
    size_t n_used = 0;
    pthread_mutex_lock(&server->mutex);
    for (size_t i = 0; i < ARRAY_LEN(server->connections); i++)
        n_used += server->connections[i].is_used;
    for (size_t i = 0; i < ARRAY_LEN(server->connections); i++) {
        const struct connection *c = &server->connections[i];
        bool is_crowded = n_used > CONNECTIONS_MOST / 2;
        double most = c->is_answering ? ANSWER_SECONDS
                      : is_crowded    ? CROWDED_SECONDS
                                      : REQUEST_SECONDS;
        if (c->is_used && !c->is_stream && now - c->since > most)
            shutdown(c->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&server->mutex);
}

/* -- answers ------------------------------------------------------------------------- */

static void add_header(struct MHD_Response *response, const char *name, const char *value)
{
    // -1 means that there is no memory: then the response goes without
    (void)MHD_add_response_header(response, name, value);
}

static void add_safety(struct MHD_Response *response)
{
    add_header(response, "Content-Security-Policy",
               "default-src 'none'; script-src 'self'; style-src 'self'; "
               "connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
               "form-action 'none'; frame-ancestors 'none'");
    add_header(response, "X-Content-Type-Options", "nosniff");
    add_header(response, "X-Frame-Options", "DENY");
    add_header(response, "Referrer-Policy", "no-referrer");
    add_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    add_header(response, "Cross-Origin-Opener-Policy", "same-origin");
    add_header(response, "Cache-Control", "no-store");
}

static enum MHD_Result send_response(struct MHD_Connection *connection, int status,
                                     struct MHD_Response *response)
{
    if (!response)
        return MHD_NO;
    add_safety(response);
    enum MHD_Result rc = MHD_queue_response(connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return rc;
}

/* Takes over the body. */
static enum MHD_Result send_text(struct MHD_Connection *connection, int status,
                                 const char *type, struct board_text *body,
                                 const char *file_name)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        (size_t)body->n, body->bytes, MHD_RESPMEM_MUST_FREE);
    if (!response)
        board_text_release(body);
    *body = (struct board_text){0};
    if (response)
        add_header(response, "Content-Type", type);
    if (response && file_name)
        add_header(response, "Content-Disposition", file_name);
    return send_response(connection, status, response);
}

static enum MHD_Result send_refusal(struct MHD_Connection *connection, int status,
                                    const char *sentence)
{
    struct board_text body = {0};
    board_text_put(&body, "{\"error\":");
    board_text_string(&body, sentence, strlen(sentence));
    board_text_put(&body, "}\n");
    struct MHD_Response *response = MHD_create_response_from_buffer(
        (size_t)body.n, body.bytes, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        board_text_release(&body);
        return MHD_NO;
    }
    add_header(response, "Content-Type", "application/json");
    add_header(response, "Connection", "close");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        add_header(response, "Allow", "GET, HEAD");
    if (status == MHD_HTTP_UNAUTHORIZED)
        add_header(response, "WWW-Authenticate", "Bearer realm=\"trefoil board\"");
    return send_response(connection, status, response);
}

static const char *header_of(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static enum MHD_Result send_page(struct MHD_Connection *connection,
                                 const struct board_page_file *file)
{
    const char *accepted = header_of(connection, "Accept-Encoding");
    struct board_text plain = {0};
    struct error err;
    if (accepted && strstr(accepted, "gzip")) {
        struct MHD_Response *response = MHD_create_response_from_buffer(
            (size_t)(file->packed_end - file->packed), (void *)(uintptr_t)file->packed,
            MHD_RESPMEM_PERSISTENT);
        if (response) {
            add_header(response, "Content-Type", file->type);
            add_header(response, "Content-Encoding", "gzip");
            add_header(response, "Vary", "Accept-Encoding");
        }
        return send_response(connection, MHD_HTTP_OK, response);
    }
    if (board_page_unpack(file, &plain, &err)) {
        board_text_release(&plain);
        return MHD_NO;
    }
    return send_text(connection, MHD_HTTP_OK, file->type, &plain, NULL);
}

/* -- requests ------------------------------------------------------------------------ */

static const char *argument_of(void *context, const char *name)
{
    return MHD_lookup_connection_value(context, MHD_GET_ARGUMENT_KIND, name);
}

/* By the cookie that the page was opened with, by a header, or in the address. */
static bool has_token(struct board_server *server, struct MHD_Connection *connection)
{
    static const char bearer[] = "Bearer ";
    const char *header = header_of(connection, "Authorization");
    if (!server->guard.token[0])
        return true;
    if (header)
        header = strncasecmp(header, bearer, sizeof bearer - 1) == 0
                     ? header + sizeof bearer - 1
                     : NULL;
    return board_guard_knows_token(&server->guard, argument_of(connection, "token")) ||
           board_guard_knows_token(&server->guard, header) ||
           board_guard_knows_token(
               &server->guard,
               MHD_lookup_connection_value(connection, MHD_COOKIE_KIND, server->cookie));
}

/* The token leaves the address, where it would be seen, and becomes a cookie. */
static enum MHD_Result send_cookie(struct board_server *server,
                                   struct MHD_Connection *connection)
{
    char cookie[COOKIE_BYTES + BOARD_TOKEN_BYTES + 64];
    struct MHD_Response *response =
        MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    snprintf(cookie, sizeof cookie, "%s=%s; Path=/; HttpOnly; SameSite=Strict",
             server->cookie, server->guard.token);
    if (response) {
        add_header(response, "Set-Cookie", cookie);
        add_header(response, "Location", "/");
    }
    return send_response(connection, MHD_HTTP_SEE_OTHER, response);
}

static enum MHD_Result answer(struct board_server *server,
                              struct MHD_Connection *connection, const char *path)
{
    const struct board_page_file *file = board_page_find(path);
    const struct board_request request = {
        .path = path, .value = argument_of, .context = connection};
    struct board_answer found;
    if (file && strcmp(path, "/") == 0 && argument_of(connection, "token") &&
        server->guard.token[0])
        return send_cookie(server, connection);
    if (file)
        return send_page(connection, file);
    if (strcmp(path, "/api/stream") == 0) {
        struct MHD_Response *response =
            board_streams_response(&server->streams, connection);
        if (!response)
            return send_refusal(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                                "too many pages are open: close one");
        set_phase(server, connection_of(connection), true, true);
        return send_response(connection, MHD_HTTP_OK, response);
    }
    board_answer(server->board, &request, &found);
    return send_text(connection, found.status, found.type, &found.body,
                     found.file_name[0] ? found.file_name : NULL);
}

static enum MHD_Result refuse_token(struct board_server *server,
                                    struct MHD_Connection *connection)
{
    char sentence[BOARD_PLACE_BYTES + 128];
    snprintf(sentence, sizeof sentence,
             "the board needs its token: open the address that it printed; the token is "
             "%s",
             server->token_place);
    return send_refusal(connection, MHD_HTTP_UNAUTHORIZED, sentence);
}

/* Before the library takes the address apart. It has no answer where the parameters fill
 * its memory. */
static void *on_uri(void *context, const char *uri, struct MHD_Connection *connection)
{
    struct connection *c = connection_of(connection);
    (void)context;
    if (!c)
        return NULL;
    c->uri_status = board_guard_uri_status(uri);
    if (c->uri_status == MHD_HTTP_URI_TOO_LONG)
        board_head_refuse(c->fd, c->uri_status);
    return NULL; // of the request, until its head is there
}

/* The first call for a request: its head is there. */
static enum MHD_Result check_head(struct board_server *server,
                                  struct MHD_Connection *connection, const char *method)
{
    struct connection *c = connection_of(connection);
    int status;
    set_phase(server, c, true, false);
    if (!c || c->uri_status == MHD_HTTP_URI_TOO_LONG)
        return MHD_NO;
    if (board_head_is_full(connection)) {
        board_head_refuse(c->fd, MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE);
        return MHD_NO;
    }
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return send_refusal(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                            "the board only shows: GET and HEAD are all it knows");
    const char *fault = board_head_fault(connection, &status);
    if (fault)
        return send_refusal(connection, status, fault);
    if (c->uri_status)
        return send_refusal(connection, c->uri_status,
                            "no such page: its address has an escape that is not "
                            "allowed");
    return MHD_YES;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection,
                                  const char *path, const char *method,
                                  const char *version, const char *body, size_t *n_body,
                                  void **request_context)
{
    struct board_server *server = context;
    const char *site = header_of(connection, "Sec-Fetch-Site");
    const char *mode = header_of(connection, "Sec-Fetch-Mode");
    (void)version;
    (void)body;
    (void)n_body;
    if (!*request_context) {
        *request_context = server;
        return check_head(server, connection, method);
    }
    if (!board_guard_knows_host(&server->guard, header_of(connection, "Host")))
        return send_refusal(connection, MHD_HTTP_FORBIDDEN,
                            "the board does not answer to this name: ask for it by its "
                            "address or as localhost");
    if (site && strcmp(site, "cross-site") == 0 &&
        !(mode && strcmp(mode, "navigate") == 0))
        return send_refusal(connection, MHD_HTTP_FORBIDDEN,
                            "the board does not answer to pages of other sites");
    if (!has_token(server, connection))
        return refuse_token(server, connection);
    return answer(server, connection, path);
}

static void on_completed(void *context, struct MHD_Connection *connection,
                         void **request_context, enum MHD_RequestTerminationCode how)
{
    struct board_server *server = context;
    (void)how;
    *request_context = NULL;
    set_phase(server, connection_of(connection), false, false);
}

/* -- life ---------------------------------------------------------------------------- */

/* A socket that listens on the address and port; -1 with errno. */
static int listen_on(const char *address, int port)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_PASSIVE,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char service[16];
    int yes = 1, fd = -1, reason;
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(address, service, &hints, &found) || !found) {
        errno = EINVAL;
        return -1;
    }
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) ||
                    bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, BACKLOG))) {
        reason = errno;
        close(fd);
        errno = reason;
        fd = -1;
    }
    reason = errno;
    freeaddrinfo(found);
    errno = reason;
    return fd;
}

static int port_of(int fd)
{
    struct sockaddr_storage bound = {0};
    char service[16];
    socklen_t n = sizeof bound;
    if (getsockname(fd, (struct sockaddr *)&bound, &n) ||
        getnameinfo((struct sockaddr *)&bound, n, NULL, 0, service, sizeof service,
                    NI_NUMERICSERV))
        return 0;
    return (int)strtol(service, NULL, 10);
}

static int listen_somewhere(const struct board_server_options *o, struct error *err)
{
    int first = o->port < 0 ? BOARD_PORT : (int)o->port;
    int n_tries = o->port < 0 ? BOARD_PORTS_TRIED : 1, fd = -1;
    for (int i = 0; i < n_tries && fd < 0; i++) {
        fd = listen_on(o->address, first + i);
        if (fd < 0 && errno != EADDRINUSE)
            break;
    }
    if (fd < 0)
        error_set(
            err, errno == EADDRNOTAVAIL ? ERROR_INPUT : ERROR_RUNTIME,
            "cannot listen on %s, port %d: %s%s", o->address, first, strerror(errno),
            errno == EADDRINUSE ? "; choose another with --port, or leave it out" : "");
    return fd;
}

int board_server_open(struct board_server **opened, struct board *b,
                      const struct board_server_options *options, struct error *err)
{
    struct board_server *server = calloc(1, sizeof *server);
    int fd = -1;
    *opened = NULL;
    if (!server)
        return error_set(err, ERROR_RUNTIME, "out of memory for the server");
    server->board = b;
    pthread_mutex_init(&server->mutex, NULL);
    board_streams_init(&server->streams, b);
    if (board_guard_init(&server->guard, options->address, options->token, err) == 0)
        fd = listen_somewhere(options, err);
    if (fd < 0) {
        board_server_close(server);
        return -1;
    }
    server->port = port_of(fd);
    snprintf(server->token_place, sizeof server->token_place, "%s", options->token_place);
    snprintf(server->cookie, sizeof server->cookie, "trefoil_board_%d", server->port);
    server->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0,
        NULL, NULL, on_request, server, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MOST,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)BOARD_HEAD_BYTES,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS,
        MHD_OPTION_URI_LOG_CALLBACK, on_uri, server, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, server, MHD_OPTION_NOTIFY_COMPLETED, on_completed, server,
        MHD_OPTION_END);
    if (!server->daemon) {
        int why = errno; // EAGAIN: there may be no more threads
        close(fd);
        board_server_close(server);
        return process_fork_failed(err, "the server", why);
    }
    *opened = server;
    return 0;
}

void board_server_close(struct board_server *server)
{
    if (!server)
        return;
    board_streams_end(&server->streams);
    if (server->daemon)
        MHD_stop_daemon(server->daemon);
    board_streams_release(&server->streams);
    pthread_mutex_destroy(&server->mutex);
    free(server);
}

bool board_server_is_there(void)
{
    return true;
}

int board_server_port(const struct board_server *server)
{
    return server->port;
}

const struct board_guard *board_server_guard(const struct board_server *server)
{
    return &server->guard;
}

void board_server_tick(struct board_server *server)
{
    board_streams_tick(&server->streams);
    end_slow(server);
}
