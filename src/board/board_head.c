#include "board/board_head.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define ANSWER_BYTES 3072 // of BOARD_HEAD_BYTES, for the head of an answer
#define VALUE_BYTES 64    // that the library needs to keep a header or parameter

struct tally {
    int n_hosts, n_authorizations, n_tokens;
    bool has_nul, has_body;
};

static bool is_named(const char *key, size_t n_key, const char *name)
{
    return n_key == strlen(name) && strncasecmp(key, name, n_key) == 0;
}

static enum MHD_Result count_value(void *context, enum MHD_ValueKind kind,
                                   const char *key, size_t n_key, const char *value,
                                   size_t n_value)
{
    struct tally *t = context;
    bool is_header = kind == MHD_HEADER_KIND;
    if (!key)
        return MHD_YES;
    t->has_nul |= (n_key > 0 && memchr(key, 0, n_key)) ||
                  (n_value > 0 && value && memchr(value, 0, n_value));
    t->n_hosts += is_header && is_named(key, n_key, "Host");
    t->n_authorizations += is_header && is_named(key, n_key, "Authorization");
    t->n_tokens += kind == MHD_GET_ARGUMENT_KIND && is_named(key, n_key, "token");
    t->has_body |= is_header && is_named(key, n_key, "Transfer-Encoding");
    t->has_body |= is_header && is_named(key, n_key, "Content-Length") && value &&
                   value[strspn(value, "0")] != 0;
    return MHD_YES;
}

static int count_all(struct MHD_Connection *connection, struct tally *t)
{
    static const enum MHD_ValueKind kinds[] = {MHD_HEADER_KIND, MHD_COOKIE_KIND,
                                               MHD_GET_ARGUMENT_KIND};
    int n = 0;
    *t = (struct tally){0};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        n += MHD_get_connection_values_n(connection, kinds[i], count_value, t);
    return n;
}

const char *board_head_fault(struct MHD_Connection *connection, int *status)
{
    struct tally t;
    count_all(connection, &t);
    *status = MHD_HTTP_BAD_REQUEST;
    if (t.has_nul)
        return "the request has a NUL byte";
    if (t.n_hosts > 1)
        return "the request has several headers Host: send one";
    if (t.n_authorizations > 1 || t.n_tokens > 1)
        return "the request has several tokens of one kind: send one";
    if (t.has_body)
        return "the request has a body: the board only answers GET and HEAD, without one";
    return NULL;
}

bool board_head_is_full(struct MHD_Connection *connection)
{
    struct tally t;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    size_t n_bytes = info ? info->header_size : 0;
    n_bytes += (size_t)count_all(connection, &t) * VALUE_BYTES;
    return n_bytes > BOARD_HEAD_BYTES - ANSWER_BYTES;
}

void board_head_refuse(int fd, int status)
{
    static const char body[] = "{\"error\":\"the request is too long\"}\n";
    char text[256];
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                     status,
                     status == MHD_HTTP_URI_TOO_LONG ? "URI Too Long"
                                                     : "Request Header Fields Too Large",
                     sizeof body - 1, body);
    (void)!send(fd, text, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL); // best effort
    shutdown(fd, SHUT_RDWR);
}
