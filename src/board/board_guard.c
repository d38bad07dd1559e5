#include "board/board_guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
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

/* -- tokens -------------------------------------------------------------------------- */

static int make_token(char token[BOARD_TOKEN_BYTES], struct error *err)
{
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return error_set(err, ERROR_RUNTIME, "cannot make a token: %s", strerror(errno));
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(token + 2 * i, 3, "%02x", random[i]);
    return 0;
}

/* It stands in an address and in a cookie as it is. */
static int take_token(char token[BOARD_TOKEN_BYTES], const char *given, struct error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-_";
    size_t n = strlen(given);
    if (n < BOARD_TOKEN_LEAST || n >= BOARD_TOKEN_BYTES || strspn(given, letters) != n)
        return error_set(err, ERROR_INPUT,
                         "--token must have %d to %d letters, digits, '-' and '_': leave "
                         "it out and one is made",
                         BOARD_TOKEN_LEAST, BOARD_TOKEN_BYTES - 1);
    memcpy(token, given, n + 1);
    return 0;
}

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
    if (token)
        return take_token(guard->token, token, err);
    return guard->is_local ? 0 : make_token(guard->token, err);
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
