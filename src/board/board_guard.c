#include "board/board_guard.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Of an address as text, IPv6 without brackets; false: it is none. */
static bool is_address(const char *text, bool *is_loopback)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, text, &v4) == 1) {
        *is_loopback = (ntohl(v4.s_addr) >> 24) == 127;
        return true;
    }
    if (inet_pton(AF_INET6, text, &v6) == 1) {
        *is_loopback = IN6_IS_ADDR_LOOPBACK(&v6);
        return true;
    }
    return false;
}

/* -- addresses ----------------------------------------------------------------------- */

/* By its own resolver: a name that merely begins like this machine's may be anybody's. */
static void find_full_name(struct board_guard *guard)
{
    const struct addrinfo hints = {.ai_flags = AI_CANONNAME};
    struct addrinfo *found = NULL;
    if (getaddrinfo(guard->host, NULL, &hints, &found) || !found)
        return;
    if (found->ai_canonname)
        snprintf(guard->full_name, sizeof guard->full_name, "%s", found->ai_canonname);
    freeaddrinfo(found);
}

int board_guard_init(struct board_guard *guard, const char *address, const char *token,
                     struct error *err)
{
    *guard = (struct board_guard){.is_local = false};
    snprintf(guard->token, sizeof guard->token, "%s", token);
    if (!is_address(address, &guard->is_local))
        return error_set(
            err, ERROR_INPUT,
            "--listen '%s' is not an address: give one of this machine, such "
            "as 192.0.2.7 or 0.0.0.0 for all of them",
            address);
    if (gethostname(guard->host, sizeof guard->host - 1))
        snprintf(guard->host, sizeof guard->host, "localhost");
    if (!guard->is_local)
        find_full_name(guard);
    return 0;
}

bool board_guard_knows_token(const struct board_guard *guard, const char *token)
{
    size_t n = strlen(guard->token), n_given = token ? strlen(token) : 0;
    unsigned differ = n != n_given;
    for (size_t i = 0; n_given > 0 && i < n; i++)
        differ |= (unsigned char)guard->token[i] ^ (unsigned char)token[i % n_given];
    return n_given > 0 && differ == 0;
}

/* -- hosts --------------------------------------------------------------------------- */

/* "name", "name:port", "[v6]", "[v6]:port": the name alone. */
static bool host_name(const char *host, char name[256])
{
    const char *start = host, *end;
    if (*host == '[') {
        start++;
        end = strchr(start, ']');
        if (!end || (end[1] && end[1] != ':'))
            return false;
    } else {
        end = start + strcspn(start, ":");
    }
    const char *port = strchr(end, ':');
    if (port && (strlen(port) > 6 || strspn(port + 1, "0123456789") != strlen(port + 1)))
        return false;
    size_t n = (size_t)(end - start);
    if (n == 0 || n >= 256)
        return false;
    memcpy(name, start, n);
    name[n] = 0;
    return true;
}

bool board_guard_knows_host(const struct board_guard *guard, const char *host)
{
    char name[256];
    bool is_loopback;
    if (!host || !host_name(host, name))
        return false;
    if (strcasecmp(name, "localhost") == 0)
        return true;
    if (is_address(name, &is_loopback))
        return is_loopback || !guard->is_local;
    return !guard->is_local &&
           (strcasecmp(name, guard->host) == 0 ||
            (guard->full_name[0] && strcasecmp(name, guard->full_name) == 0));
}

/* -- what is asked for --------------------------------------------------------------- */

int board_guard_uri_status(const char *uri)
{
    size_t n_path = strcspn(uri, "?"), n_parameters = 1;
    for (const char *at = uri + n_path; *at; at++)
        n_parameters += *at == '&';
    if (n_parameters > BOARD_PARAMETERS_MOST)
        return 414;
    if (strstr(uri, "%00"))
        return 400;
    return memchr(uri, '%', n_path) ? 404 : 0;
}
